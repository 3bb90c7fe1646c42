// LFU: the copy with the fewest uses since it was cached leaves first, then the one used longest ago.
#pragma once

#include "engine/frequency_queues.h"
#include "engine/policy.h"

namespace esd {

class LfuPolicy final : public Policy {
 public:
  explicit LfuPolicy(Copies& copies) : copies_(copies) {}

  void choose(std::uint32_t count, Slots& victims) override { order_.take(copies_, count, victims); }

  void use(const Slots& pinned, const Slots& slots, std::uint32_t now) override {
    for (const std::uint32_t slot : pinned) order_.forget(copies_[slot]);
    for (const std::uint32_t slot : slots) {
      Copy& copy = copies_[slot];
      copy.frequency = next_frequency(copy.frequency);
      copy.stamp = use_stamp(now);
      copy.outdated = copy.pinned = false;
      order_.push(copies_, slot);
    }
  }

  void outdate(const Slots& slots, std::uint32_t) override {
    for (const std::uint32_t slot : slots) copies_[slot].outdated = true;
  }

  void remove(std::uint32_t slot) override { order_.forget(copies_[slot]); }

  void list(Slots& slots) const override { order_.append_to(copies_, slots); }
  void append(std::uint32_t slot) override { order_.push(copies_, slot); }
  std::size_t memory_bytes() const override { return sizeof *this + order_.memory_bytes(); }

 private:
  Copies& copies_;
  FrequencyQueues order_;
};

}  // namespace esd
