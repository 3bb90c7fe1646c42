// Copies in the order in which they came: first in, first out.
//
// A copy that leaves from the middle leaves its record behind; it is recognised by its stamp, which is no longer that
// of the copy. So entering and leaving touch no neighbours (a linked list would), taking reads ahead, and records that
// are out of date are swept when they outnumber the others: constant time per operation, amortised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/copies.h"

namespace esd {

class CopyQueue {
 public:
  bool empty() const { return present_ == 0; }

  void push(const Copies& copies, std::uint32_t slot) {
    if (records_.size() > 2 * present_ + kSlack) sweep(copies);
    records_.push_back({slot, copies[slot].stamp});
    ++present_;
  }

  // A copy that is in the queue gets another stamp or leaves its slot.
  void forget() {
    if (--present_ == 0) clear();
  }

  // Takes up to `count` copies that are not pinned, first in first; returns how many are missing. A pinned copy is
  // passed over for good: it is about to be used, which gives it another place.
  std::uint32_t take(const Copies& copies, std::uint32_t count, Slots& victims) {
    for (; count > 0 && first_ < records_.size(); ++first_) {
      if (first_ + kAhead < records_.size()) __builtin_prefetch(&copies[records_[first_ + kAhead].slot]);
      const auto [slot, stamp] = records_[first_];
      if (copies[slot].stamp != stamp || copies[slot].pinned) continue;
      victims.push_back(slot);
      --present_;
      --count;
    }
    if (present_ == 0) clear();
    return count;
  }

  void append_to(const Copies& copies, Slots& slots) const {
    for (std::size_t i = first_; i < records_.size(); ++i) {
      if (copies[records_[i].slot].stamp == records_[i].stamp) slots.push_back(records_[i].slot);
    }
  }

  std::size_t memory_bytes() const { return records_.capacity() * sizeof(Record); }

 private:
  struct Record {
    std::uint32_t slot, stamp;
  };
  static constexpr std::size_t kAhead = 32;
  static constexpr std::size_t kSlack = 16;

  void clear() {
    records_.clear();
    first_ = 0;
  }

  void sweep(const Copies& copies) {
    std::size_t kept = 0;
    for (std::size_t i = first_; i < records_.size(); ++i) {
      if (i + kAhead < records_.size()) __builtin_prefetch(&copies[records_[i + kAhead].slot]);
      const Record record = records_[i];
      records_[kept] = record;  // no branch on whether it stays: it would be mispredicted half the time
      kept += copies[record.slot].stamp == record.stamp;
    }
    records_.resize(kept);
    first_ = 0;
  }

  std::vector<Record> records_;
  std::size_t first_ = 0;    // records before it have been taken
  std::size_t present_ = 0;  // records that are not out of date
};

}  // namespace esd
