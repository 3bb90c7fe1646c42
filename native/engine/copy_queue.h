// Copies in the order in which they came: first in, first out.
//
// A copy that leaves from the middle leaves its record behind; it is recognised by its stamp, which is no longer that
// of the copy. So entering touches no neighbours (a linked list would), leaving touches nothing, and taking reads ahead.
// Records that are out of date are swept when there is no room for more, and room is only made when they are the fewer:
// constant time per operation, amortised.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/copies.h"

namespace esd {

class CopyQueue {
 public:
  // Whether no records are left, not even such as are out of date.
  bool empty() const { return first_ == end_; }

  void push(const Copies& copies, std::uint32_t slot) {
    if (end_ == capacity_) make_room(copies);
    records_[end_++] = {slot, copies[slot].stamp};
  }

  // Takes up to `count` copies, first in first; returns how many are missing.
  std::uint32_t take(const Copies& copies, std::uint32_t count, Slots& victims) {
    for (; count > 0 && first_ < end_; ++first_) {
      if (first_ + kAhead < end_) __builtin_prefetch(&copies[records_[first_ + kAhead].slot]);
      const auto [slot, stamp] = records_[first_];
      if (copies[slot].stamp != stamp) continue;
      victims.push_back(slot);
      --count;
    }
    if (empty()) first_ = end_ = 0;
    return count;
  }

  void append_to(const Copies& copies, Slots& slots) const {
    for (std::uint32_t i = first_; i < end_; ++i) {
      if (copies[records_[i].slot].stamp == records_[i].stamp) slots.push_back(records_[i].slot);
    }
  }

  std::size_t memory_bytes() const { return records_.capacity() * sizeof(Record); }

 private:
  struct Record {
    std::uint32_t slot, stamp;
  };
  static constexpr std::uint32_t kAhead = 32;
  static constexpr std::size_t kLeast = 4;

  void make_room(const Copies& copies) {
    sweep(copies);
    if (2 * end_ < records_.size()) return;
    records_.resize(std::max(kLeast, 2 * records_.size()));
    capacity_ = static_cast<std::uint32_t>(records_.size());
  }

  void sweep(const Copies& copies) {
    Record* const records = records_.data();
    std::uint32_t kept = 0;
    for (std::uint32_t i = first_, end = end_; i < end; ++i) {
      __builtin_prefetch(&copies[records[std::min(i + kAhead, end - 1)].slot]);
      const Record record = records[i];
      records[kept] = record;  // no branch on whether it stays: it would be mispredicted half the time
      kept += copies[record.slot].stamp == record.stamp;
    }
    first_ = 0;
    end_ = kept;
  }

  std::vector<Record> records_;
  std::uint32_t capacity_ = 0;         // the size of `records_`
  std::uint32_t first_ = 0, end_ = 0;  // the records in between are in the queue
};

}  // namespace esd
