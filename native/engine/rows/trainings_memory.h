// How often rows were trained that the engine knows no longer: what cache replacement and joint dispatch guess from when
// such a row comes back.
//
// The memory has a limit: 4 bytes for each of some rows per cached one. It is a table of sets, one cache line each, and a set
// forgets the row that it was told of first. A row is known by 28 bits of its hash besides its set, so one in 16 million
// that are looked up in vain is taken for another one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/mix64.h"
#include "engine/memory/huge_pages.h"
#include "engine/rows/row_state.h"

namespace esd {

class TrainingsMemory {
 public:
  // `cached_rows` is how many rows all caches hold.
  explicit TrainingsMemory(std::uint64_t cached_rows) {
    while (set_bits_ < kMostSetBits && (kWays << set_bits_) < kPerCachedRow * cached_rows) ++set_bits_;
  }

  // `trainings` is 1..kManyTrainings.
  void remember(std::uint64_t id, std::uint32_t trainings) {
    if (entries_.empty()) entries_.resize(kWays << set_bits_);
    const std::uint64_t hash = mix64(id);
    std::uint32_t* const set = entries_.data() + set_of(hash);
    std::size_t at = 0;
    while (at + 1 < kWays && set[at] >> kTrainingsBits != tag_of(hash)) ++at;
    std::copy_backward(set, set + at, set + at + 1);
    set[0] = tag_of(hash) << kTrainingsBits | trainings;
  }

  // How often the row was trained; 0 if it is not remembered.
  std::uint32_t recall(std::uint64_t id) const {
    const std::uint64_t hash = mix64(id);
    const std::uint32_t* const set = entries_.data() + set_of(hash);
    std::uint32_t found = 0;
    for (std::size_t at = 0; at < kWays; ++at) {
      found = std::max(found, set[at] >> kTrainingsBits == tag_of(hash) ? set[at] & kManyTrainings : 0);
    }
    return found;
  }

  [[gnu::always_inline]] void prefetch(std::uint64_t id) const {
    if (!entries_.empty()) __builtin_prefetch(entries_.data() + set_of(mix64(id)), 1);
  }

  bool empty() const { return entries_.empty(); }

  // For snapshots. Entries of an engine with caches of another size are not taken over.
  const HugeVector<std::uint32_t>& entries() const { return entries_; }
  void restore(HugeVector<std::uint32_t>&& entries) {
    entries_ = entries.size() == kWays << set_bits_ ? std::move(entries) : HugeVector<std::uint32_t>();
  }

  std::size_t memory_bytes() const { return entries_.capacity() * sizeof(std::uint32_t); }

 private:
  static constexpr std::size_t kWays = 16;
  static constexpr unsigned kTrainingsBits = 4;
  static constexpr std::uint64_t kPerCachedRow = 8;
  static constexpr unsigned kMostSetBits = 20;  // 2^24 rows, 64 MiB

  std::size_t set_of(std::uint64_t hash) const { return (hash >> (64 - set_bits_)) * kWays; }
  static std::uint32_t tag_of(std::uint64_t hash) { return static_cast<std::uint32_t>(hash) >> kTrainingsBits; }

  unsigned set_bits_ = 16;             // 2^20 rows at least, 4 MiB
  HugeVector<std::uint32_t> entries_;  // tag and trainings, 0 where there is none; none before the first row
};

}  // namespace esd
