// A cache policy of one's own: copies that lack the latest value leave first, then those used longest ago.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/cache/policy.h"
#include "engine/cache/queues.h"

namespace esd {

class OutdatedFirstPolicy final : public Policy {
 public:
  explicit OutdatedFirstPolicy(Copies& copies) : copies_(copies) {}

  void choose(std::uint32_t count, Slots& victims) override {
    current_.take(copies_, outdated_.take(copies_, count, victims), victims);  // `take` returns how many are missing
  }

  void use(const SlotIndex* slots, std::size_t count) override {
    for (std::size_t i = 0; i < count; ++i) {
      copies_[slots[i]].outdated = 0;
      current_.push(copies_, slots[i]);
    }
  }

  void outdate(const SlotIndex* slots, std::size_t count, std::uint32_t now) override {
    for (std::size_t i = 0; i < count; ++i) {
      copies_[slots[i]].outdated = 1;
      copies_[slots[i]].stamp = outdate_stamp(now);  // so that it leaves its position in `current_`
      outdated_.push(copies_, slots[i]);
    }
  }

  void list(Slots& slots) const override {
    outdated_.append_to(copies_, slots);
    current_.append_to(copies_, slots);
  }
  void append(SlotIndex slot) override { (copies_[slot].outdated ? outdated_ : current_).push(copies_, slot); }
  std::size_t memory_bytes() const override {
    return sizeof *this + outdated_.memory_bytes() + current_.memory_bytes();
  }

 private:
  Copies& copies_;
  CopyQueue outdated_, current_;
};

}  // namespace esd
