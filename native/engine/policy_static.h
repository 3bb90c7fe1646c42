// Static: rows of the hot set stay, the others come and go between them, least recently used first.
//
// Only where one iteration's other rows need more room than there is does a hot row leave, too. A copy counts as hot from
// its first use after the set is chosen.
#pragma once

#include "engine/copy_queue.h"
#include "engine/hot_rows.h"
#include "engine/policy.h"

namespace esd {

class StaticPolicy final : public Policy {
 public:
  StaticPolicy(Copies& copies, const HotRows& hot_rows) : copies_(copies), hot_rows_(hot_rows) {}

  void choose(std::uint32_t count, Slots& victims) override {
    hot_.take(copies_, others_.take(copies_, count, victims), victims);
  }

  void use(const std::uint32_t* slots, std::size_t count) override {
    for (std::size_t i = 0; i < count; ++i) {
      Copy& copy = copies_[slots[i]];
      copy.mark = hot_rows_[copy.row];
      copy.outdated = 0;
      queue(copy).push(copies_, slots[i]);
    }
  }

  void outdate(const std::uint32_t* slots, std::size_t count, std::uint32_t) override {
    for (std::size_t i = 0; i < count; ++i) copies_[slots[i]].outdated = 1;
  }

  void list(Slots& slots) const override {
    others_.append_to(copies_, slots);
    hot_.append_to(copies_, slots);
  }
  void append(std::uint32_t slot) override { queue(copies_[slot]).push(copies_, slot); }

  std::size_t memory_bytes() const override { return sizeof *this + others_.memory_bytes() + hot_.memory_bytes(); }

 private:
  CopyQueue& queue(const Copy& copy) { return copy.mark ? hot_ : others_; }

  Copies& copies_;
  const HotRows& hot_rows_;
  CopyQueue hot_, others_;
};

}  // namespace esd
