// Policies that keep all copies in one order, outdated ones or not, in which a copy that is used goes back to the end.
//
// LRU is the order of a queue: the copy whose last use is longest ago leaves first. LFU is that of frequency queues: the
// copy with the fewest uses since it was cached leaves first, then the one used longest ago.
#pragma once

#include "engine/copy_queue.h"
#include "engine/frequency_queues.h"
#include "engine/policy.h"

namespace esd {

template <typename Order>
class OrderedPolicy final : public Policy {
 public:
  explicit OrderedPolicy(Copies& copies) : copies_(copies) {}

  void choose(std::uint32_t count, Slots& victims) override { order_.take(copies_, count, victims); }

  void use(const std::uint32_t* slots, std::size_t count) override {
    for (std::size_t i = 0; i < count; ++i) {
      Copy& copy = copies_[slots[i]];
      copy.frequency = next_frequency(copy.frequency);
      copy.outdated = 0;
      order_.push(copies_, slots[i]);
    }
  }

  void outdate(const std::uint32_t* slots, std::size_t count, std::uint32_t) override {
    for (std::size_t i = 0; i < count; ++i) copies_[slots[i]].outdated = 1;
  }

  void list(Slots& slots) const override { order_.append_to(copies_, slots); }
  void append(std::uint32_t slot) override { order_.push(copies_, slot); }
  std::size_t memory_bytes() const override { return sizeof *this + order_.memory_bytes(); }

 private:
  Copies& copies_;
  Order order_;
};

using LruPolicy = OrderedPolicy<CopyQueue>;
using LfuPolicy = OrderedPolicy<FrequencyQueues>;

}  // namespace esd
