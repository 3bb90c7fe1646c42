// LRU: the copy whose last use is longest ago leaves first.
#pragma once

#include "engine/copy_queue.h"
#include "engine/policy.h"

namespace esd {

class LruPolicy final : public Policy {
 public:
  explicit LruPolicy(Copies& copies) : copies_(copies) {}

  void choose(std::uint32_t count, Slots& victims) override { order_.take(copies_, count, victims); }

  void use(const Slots& pinned, const Slots& slots, std::uint32_t now) override {
    for (std::size_t i = 0; i < pinned.size(); ++i) order_.forget();
    for (const std::uint32_t slot : slots) {
      Copy& copy = copies_[slot];
      copy.stamp = use_stamp(now);
      copy.outdated = copy.pinned = false;
      order_.push(copies_, slot);
    }
  }

  void outdate(const Slots& slots, std::uint32_t) override {
    for (const std::uint32_t slot : slots) copies_[slot].outdated = true;
  }

  void remove(std::uint32_t) override { order_.forget(); }

  void list(Slots& slots) const override { order_.append_to(copies_, slots); }
  void append(std::uint32_t slot) override { order_.push(copies_, slot); }
  std::size_t memory_bytes() const override { return sizeof *this + order_.memory_bytes(); }

 private:
  Copies& copies_;
  CopyQueue order_;
};

}  // namespace esd
