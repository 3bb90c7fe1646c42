// Copies in ascending order of frequency per size of the row (ESD paper, section 8.2): the bigger of two equally frequent
// rows first, and first come first among rows of one size and frequency.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/frequency_queues.h"
#include "engine/row_sizes.h"

namespace esd {

class SizedQueues {
 public:
  explicit SizedQueues(const RowSizes& sizes) : sizes_(sizes), queues_(sizes.distinct().size()) {}

  void push(const Copies& copies, std::uint32_t slot) { of(copies[slot]).push(copies, slot); }

  // As CopyQueue::take, lowest frequency per size first. There are few sizes, so the lowest of each are compared.
  std::uint32_t take(const Copies& copies, std::uint32_t count, Slots& victims) {
    lowest_.clear();
    for (const FrequencyQueues& queues : queues_) lowest_.push_back(queues.first_filled(0));
    while (count > 0) {
      std::size_t best = 0;
      for (std::size_t c = 1; c < queues_.size(); ++c) {
        if (leaves_before(c, best)) best = c;
      }
      if (lowest_[best] == kNone) break;
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
  FrequencyQueues& of(const Copy& copy) { return queues_[sizes_.place(sizes_[copy.row])]; }

  // `a` is the bigger size.
  bool leaves_before(std::size_t a, std::size_t b) const {
    if (lowest_[a] == kNone || lowest_[b] == kNone) return lowest_[b] == kNone;
    return std::uint64_t{lowest_[a]} * sizes_.distinct()[b] <= std::uint64_t{lowest_[b]} * sizes_.distinct()[a];
  }

  const RowSizes& sizes_;
  std::vector<FrequencyQueues> queues_;  // by size, ascending
  std::vector<std::uint32_t> lowest_;    // frequency that is not used up, by size; kNone: none
};

}  // namespace esd
