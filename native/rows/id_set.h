// A set of ids, 11 to 14 bytes each. It is thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "common/mix64.h"
#include "rows/probe_table.h"

namespace esd::rows {

class IdSet {
 public:
  // Adds an id; returns whether it is new.
  bool add(std::uint64_t id) {
    const Entry entry{mix64(id)};
    Segment& segment = segments_[entry.hash >> kSegmentShift];
    const std::lock_guard lock(segment.mutex);
    if (entry.free()) {
      const bool added = !segment.has_zero;
      segment.has_zero = true;
      return added;
    }
    if (find(segment, entry)) return false;
    segment.hashes.insert(entry);
    return true;
  }

  bool has(std::uint64_t id) const {
    const Entry entry{mix64(id)};
    const Segment& segment = segments_[entry.hash >> kSegmentShift];
    const std::lock_guard lock(segment.mutex);
    return entry.free() ? segment.has_zero : find(segment, entry);
  }

  // Copies up to `limit` ids from `cursor` on, which starts at 0 and is advanced past them. Returns their number, 0 at
  // the end. While ids are added some may be skipped or repeated.
  std::size_t scan(std::uint64_t& cursor, std::size_t limit, std::uint64_t* ids) const {
    std::size_t n = 0;
    while (n < limit && (cursor >> 32) < kSegments) {
      const Segment& segment = segments_[cursor >> 32];
      const std::lock_guard lock(segment.mutex);
      std::size_t place = cursor & 0xffffffffULL;
      const std::size_t places = segment.hashes.places();
      for (; n < limit && place < places; ++place) {
        const Entry& entry = segment.hashes.at(place);
        if (!entry.free()) ids[n++] = unmix64(entry.hash);
      }
      const bool more = place < places || (segment.has_zero && n == limit);
      if (!more && segment.has_zero) ids[n++] = 0;
      cursor = more ? (cursor >> 32 << 32 | place) : ((cursor >> 32) + 1) << 32;
    }
    return n;
  }

  std::size_t size() const {
    return sum([](const Segment& segment) { return segment.hashes.used() + (segment.has_zero ? 1 : 0); });
  }

  std::size_t memory_bytes() const {
    return sizeof(*this) + sum([](const Segment& segment) { return segment.hashes.memory_bytes(); });
  }

 private:
  static constexpr std::size_t kSegments = 64;
  static constexpr int kSegmentShift = 58;

  struct Entry {
    std::uint64_t hash = 0;

    bool free() const { return hash == 0; }
    std::uint32_t bits() const { return static_cast<std::uint32_t>(hash << (64 - kSegmentShift) >> 32); }
  };

  struct Segment {
    mutable std::mutex mutex;
    ProbeTable<Entry> hashes;
    bool has_zero = false;  // whether it has id 0, whose hash would mark a free place
  };

  static bool find(const Segment& segment, const Entry& entry) {
    return segment.hashes.find(entry.bits(), [&](const Entry& other) { return other.hash == entry.hash; }) != nullptr;
  }

  template <typename Of>
  std::size_t sum(const Of& of) const {
    std::size_t total = 0;
    for (const Segment& segment : segments_) {
      const std::lock_guard lock(segment.mutex);
      total += of(segment);
    }
    return total;
  }

  std::array<Segment, kSegments> segments_;
};

}  // namespace esd::rows
