// Queues of cached copies, the orders from which the policies choose victims.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/batch/row_sizes.h"
#include "engine/rows/copies.h"
#include "engine/rows/index_types.h"

namespace esd {

// Copies in the order in which they came: first in, first out.
//
// A copy that leaves from the middle leaves its record behind; the record is recognised by its stamp, which is no
// longer that of the copy. So entering touches no neighbours (a linked list would), leaving touches nothing, and taking
// reads ahead. Records that are out of date are swept when there is no room for more, and room is only made when they
// are the fewer: constant time per operation, amortised.
class CopyQueue {
 public:
  // Whether no records are left, not even records that are out of date.
  bool empty() const { return first_ == end_; }

  void push(const Copies& copies, SlotIndex slot) {
    if (end_ == capacity_) make_room(copies);
    records_[end_++] = {slot, copies[slot].stamp};
  }

  // Takes up to `count` copies in the order in which they came. Returns how many are missing.
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

  // The copy that came first, which stays in the queue; there is none, and so null, in one whose copies have all left.
  const Copy* first(const Copies& copies) {
    while (first_ < end_ && copies[records_[first_].slot].stamp != records_[first_].stamp) ++first_;
    return first_ < end_ ? &copies[records_[first_].slot] : nullptr;
  }

  void append_to(const Copies& copies, Slots& slots) const {
    for (std::uint32_t i = first_; i < end_; ++i) {
      if (copies[records_[i].slot].stamp == records_[i].stamp) slots.push_back(records_[i].slot);
    }
  }

  std::size_t memory_bytes() const { return records_.capacity() * sizeof(Record); }

 private:
  struct Record {
    SlotIndex slot;
    std::uint32_t stamp;
  };
  static constexpr std::uint32_t kAhead = 32;  // records ahead whose copies are prefetched
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
      records[kept] = record;  // whether it stays is no branch, which would be mispredicted half the time
      kept += copies[record.slot].stamp == record.stamp;
    }
    first_ = 0;
    end_ = kept;
  }

  std::vector<Record> records_;
  std::uint32_t capacity_ = 0;         // the size of `records_`
  std::uint32_t first_ = 0, end_ = 0;  // the records in between are in the queue
};

// Copies in ascending order of frequency, first come first within a frequency.
class FrequencyQueues {
 public:
  static constexpr std::uint32_t kNoFrequency = 0xffffffffu;

  void push(const Copies& copies, SlotIndex slot) {
    const std::uint32_t frequency = copies[slot].frequency;
    if (frequency >= queues_.size()) queues_.resize(frequency + 1);
    CopyQueue& queue = queues_[frequency];
    if (queue.empty()) filled_[frequency / 64] |= std::uint64_t{1} << frequency % 64;
    queue.push(copies, slot);
  }

  // Takes copies as CopyQueue::take does, those of the lowest frequency first.
  std::uint32_t take(const Copies& copies, std::uint32_t count, Slots& victims) {
    for (std::uint32_t frequency = 0; count > 0 && (frequency = first_filled(frequency)) != kNoFrequency; ++frequency) {
      count = take_at(frequency, copies, count, victims);
    }
    return count;
  }

  // The lowest frequency from `frequency` on that some copy has, or has had; kNoFrequency if there is none.
  std::uint32_t first_filled(std::uint32_t frequency) const {
    std::uint64_t wanted = ~std::uint64_t{0} << frequency % 64;
    for (std::uint32_t word = frequency / 64; word < kWords; ++word, wanted = ~std::uint64_t{0}) {
      const std::uint64_t bits = filled_[word] & wanted;
      if (bits) return word * 64 + static_cast<std::uint32_t>(__builtin_ctzll(bits));
    }
    return kNoFrequency;
  }

  // Takes copies as CopyQueue::take does, those of one frequency, which `first_filled` has named.
  std::uint32_t take_at(std::uint32_t frequency, const Copies& copies, std::uint32_t count, Slots& victims) {
    count = queues_[frequency].take(copies, count, victims);
    if (queues_[frequency].empty()) filled_[frequency / 64] &= ~(std::uint64_t{1} << frequency % 64);
    return count;
  }

  void append_to(const Copies& copies, Slots& slots) const {
    for (const CopyQueue& queue : queues_) queue.append_to(copies, slots);
  }

  std::size_t memory_bytes() const {
    std::size_t bytes = queues_.capacity() * sizeof(CopyQueue);
    for (const CopyQueue& queue : queues_) bytes += queue.memory_bytes();
    return bytes;
  }

 private:
  static constexpr std::uint32_t kWords = (kMaxFrequency + 1) / 64;

  std::vector<CopyQueue> queues_;      // by frequency
  std::uint64_t filled_[kWords] = {};  // bit f % 64 of word f / 64 is set if the queue of frequency f is not empty
};

// Copies by how soon their rows may be used again: the lowest number of trainings per time since the last of them comes
// first, then the lower number, then the copy that came first. `mark` is that number, from 1 on.
class ReuseQueues {
 public:
  static constexpr std::uint32_t kMostTrainings = 16;  // rows that were trained more often are alike

  void push(const Copies& copies, SlotIndex slot) { queues_[copies[slot].mark - 1].push(copies, slot); }

  // Takes copies as CopyQueue::take does, in iteration `now`. Of those trained equally often the first one waits longest.
  std::uint32_t take(const Copies& copies, std::uint32_t count, std::uint32_t now, Slots& victims) {
    std::uint32_t waits[kMostTrainings];
    for (std::uint32_t q = 0; q < kMostTrainings; ++q) waits[q] = wait(queues_[q].first(copies), now);
    for (; count > 0; --count) {
      std::uint32_t best = 0;
      for (std::uint32_t q = 1; q < kMostTrainings; ++q) {
        if (std::uint64_t{q + 1} * waits[best] < std::uint64_t{best + 1} * waits[q]) best = q;
      }
      if (waits[best] == 0) break;
      queues_[best].take(copies, 1, victims);
      waits[best] = wait(queues_[best].first(copies), now);
    }
    return count;
  }

  void append_to(const Copies& copies, Slots& slots) const {
    for (const CopyQueue& queue : queues_) queue.append_to(copies, slots);
  }

  std::size_t memory_bytes() const {
    std::size_t bytes = 0;
    for (const CopyQueue& queue : queues_) bytes += queue.memory_bytes();
    return bytes;
  }

 private:
  static constexpr std::uint32_t kGrace = 10;  // iterations that are added, so that what was just used once may stay

  static std::uint32_t wait(const Copy* copy, std::uint32_t now) {
    return copy == nullptr ? 0 : now - last_use_of(copy->stamp) + kGrace;
  }

  CopyQueue queues_[kMostTrainings];  // by trainings, from 1 on
};

// Copies in ascending order of frequency per size of the row (ESD paper, section 8.2): the bigger of two equally
// frequent rows comes first, and among rows of one size and frequency the one that came first.
class SizedQueues {
 public:
  explicit SizedQueues(const RowSizes& sizes) : sizes_(sizes), queues_(sizes.distinct().size()) {}

  void push(const Copies& copies, SlotIndex slot) { of(copies[slot]).push(copies, slot); }

  // Takes copies as CopyQueue::take does, those of the lowest frequency per size first. There are few sizes, so the
  // lowest frequencies of all of them are compared.
  std::uint32_t take(const Copies& copies, std::uint32_t count, Slots& victims) {
    lowest_.clear();
    for (const FrequencyQueues& queues : queues_) lowest_.push_back(queues.first_filled(0));
    while (count > 0) {
      std::size_t best = 0;
      for (std::size_t c = 1; c < queues_.size(); ++c) {
        if (leaves_before(c, best)) best = c;
      }
      if (lowest_[best] == kNoFrequency) break;
      count = queues_[best].take_at(lowest_[best], copies, count, victims);
      lowest_[best] = queues_[best].first_filled(lowest_[best] + 1);
    }
    return count;
  }

  void append_to(const Copies& copies, Slots& slots) const {
    for (const FrequencyQueues& queues : queues_) queues.append_to(copies, slots);
  }

  std::size_t memory_bytes() const {
    std::size_t bytes = 0;
    for (const FrequencyQueues& queues : queues_) bytes += sizeof queues + queues.memory_bytes();
    return bytes;
  }

 private:
  static constexpr std::uint32_t kNoFrequency = FrequencyQueues::kNoFrequency;

  FrequencyQueues& of(const Copy& copy) { return queues_[sizes_.rank(copy.table)]; }

  // Compares the lowest copies of two sizes, `a` being the bigger one.
  bool leaves_before(std::size_t a, std::size_t b) const {
    if (lowest_[a] == kNoFrequency || lowest_[b] == kNoFrequency) return lowest_[b] == kNoFrequency;
    return std::uint64_t{lowest_[a]} * sizes_.distinct()[b] <= std::uint64_t{lowest_[b]} * sizes_.distinct()[a];
  }

  const RowSizes& sizes_;
  std::vector<FrequencyQueues> queues_;  // by size, ascending
  std::vector<std::uint32_t> lowest_;    // by size, the lowest frequency that is not used up, or kNoFrequency
};

}  // namespace esd
