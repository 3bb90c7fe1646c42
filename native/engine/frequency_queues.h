// Copies in ascending order of frequency, first come first within a frequency.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/copy_queue.h"
#include "engine/policy.h"

namespace esd {

class FrequencyQueues {
 public:
  void push(const Copies& copies, std::uint32_t slot) {
    const std::uint32_t frequency = copies[slot].frequency;
    if (frequency >= queues_.size()) queues_.resize(frequency + 1);
    CopyQueue& queue = queues_[frequency];
    if (queue.empty()) filled_[frequency / 64] |= std::uint64_t{1} << frequency % 64;
    queue.push(copies, slot);
  }

  // As CopyQueue::take, lowest frequency first.
  std::uint32_t take(const Copies& copies, std::uint32_t count, Slots& victims) {
    for (std::uint32_t frequency = 0; count > 0 && (frequency = first_filled(frequency)) != kNone; ++frequency) {
      count = take_at(frequency, copies, count, victims);
    }
    return count;
  }

  // The lowest frequency from `frequency` on that some copy has, or has had; kNone if there is none.
  std::uint32_t first_filled(std::uint32_t frequency) const {
    std::uint64_t wanted = ~std::uint64_t{0} << frequency % 64;
    for (std::uint32_t word = frequency / 64; word < kWords; ++word, wanted = ~std::uint64_t{0}) {
      const std::uint64_t bits = filled_[word] & wanted;
      if (bits) return word * 64 + static_cast<std::uint32_t>(__builtin_ctzll(bits));
    }
    return kNone;
  }

  // As CopyQueue::take, from the copies of one frequency that `first_filled` has named.
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
  std::uint64_t filled_[kWords] = {};  // bit f % 64 of word f / 64: the queue of frequency f is not empty
};

}  // namespace esd
