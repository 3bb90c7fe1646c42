// Counts distinct 64-bit ids exactly, in an open-addressing hash set that only grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/mix64.h"

namespace esd::text {

class DistinctIds {
 public:
  void add(const std::uint64_t* ids, std::size_t count) {
    constexpr std::size_t kAhead = 8;  // The table is larger than the caches, so a slot is asked for some ids early.
    for (std::size_t i = 0; i < count; ++i) {
      if (i + kAhead < count) __builtin_prefetch(&slots_[home(ids[i + kAhead])], 1);
      insert(ids[i]);
    }
  }

  std::size_t size() const { return size_ + has_zero_; }

 private:
  std::size_t home(std::uint64_t id) const { return mix64(id) & (slots_.size() - 1); }

  void insert(std::uint64_t id) {
    if (id == 0) {  // 0 marks a free slot, so the id 0 is kept apart.
      has_zero_ = true;
      return;
    }
    std::size_t slot = home(id);
    while (slots_[slot] != 0) {
      if (slots_[slot] == id) return;
      slot = (slot + 1) & (slots_.size() - 1);
    }
    slots_[slot] = id;
    if (++size_ * 8 > slots_.size() * 5) grow();
  }

  void grow() {
    std::vector<std::uint64_t> old(slots_.size() * 2, 0);
    old.swap(slots_);
    for (std::uint64_t id : old) {
      if (id == 0) continue;
      std::size_t slot = home(id);
      while (slots_[slot] != 0) slot = (slot + 1) & (slots_.size() - 1);
      slots_[slot] = id;
    }
  }

  std::vector<std::uint64_t> slots_ = std::vector<std::uint64_t>(1 << 12, 0);  // as many as a power of two
  std::size_t size_ = 0;
  bool has_zero_ = false;
};

}  // namespace esd::text
