// Emark (ESD paper, section 8.1): outdated copies leave first, then by mark, then by frequency.
//
// A used copy is marked `target`. When a victim is needed and every copy that may leave is current and marked `target`,
// the target rises. So no mark but the two latest is left when an iteration ends (copies that it uses may
// not leave, and are marked anew): three generations, indexed by mark modulo 3, hold all copies at any time.
//
// `Queues` order the copies of one mark: by frequency, or by frequency per size (section 8.2). Current copies with the
// latest mark wait in order of their last use: most are used again, or outdated, before the target rises and one may leave.
#pragma once

#include <initializer_list>

#include "engine/frequency_queues.h"
#include "engine/policy.h"

namespace esd {

template <typename Queues>
class EmarkPolicy final : public Policy {
 public:
  EmarkPolicy(Copies& copies, const Queues& empty)
      : copies_(copies), generations_{{empty, empty}, {empty, empty}, {empty, empty}} {}

  void choose(std::uint32_t count, Slots& victims) override {
    for (const std::uint32_t age : {2u, 1u, 0u}) {
      count = generation(target_ + 3 - age).outdated.take(copies_, count, victims);
    }
    for (const std::uint32_t age : {2u, 1u}) {
      count = generation(target_ + 3 - age).current.take(copies_, count, victims);
    }
    if (count == 0) return;
    raise_target();
    generation(target_ - 1).current.take(copies_, count, victims);
  }

  void use(const std::uint32_t* slots, std::size_t count) override {
    for (std::size_t i = 0; i < count; ++i) {
      Copy& copy = copies_[slots[i]];
      copy.frequency = next_frequency(copy.frequency);
      copy.mark = target_;
      copy.outdated = 0;
      latest_.push(copies_, slots[i]);
    }
  }

  void outdate(const std::uint32_t* slots, std::size_t count, std::uint32_t now) override {
    for (std::size_t i = 0; i < count; ++i) {
      if (i + kAhead < count) __builtin_prefetch(&copies_[slots[i + kAhead]], 1);
      const std::uint32_t slot = slots[i];
      Copy& copy = copies_[slot];
      copy.stamp = outdate_stamp(now);
      copy.outdated = 1;
      queues(copy).push(copies_, slot);
    }
  }

  void list(Slots& slots) const override {
    for (const Generation& generation : generations_) {
      generation.current.append_to(copies_, slots);
      generation.outdated.append_to(copies_, slots);
    }
    latest_.append_to(copies_, slots);
  }

  void append(std::uint32_t slot) override { queues(copies_[slot]).push(copies_, slot); }
  std::uint32_t counter() const override { return target_; }
  void set_counter(std::uint32_t target) override { target_ = target; }

  std::size_t memory_bytes() const override {
    std::size_t bytes = sizeof *this + latest_.memory_bytes() + risen_.capacity() * sizeof(std::uint32_t);
    for (const Generation& generation : generations_) {
      bytes += generation.current.memory_bytes() + generation.outdated.memory_bytes();
    }
    return bytes;
  }

 private:
  struct Generation {
    Queues current, outdated;
  };

  static constexpr std::size_t kAhead = 24;  // copies prefetched

  Generation& generation(std::uint32_t mark) { return generations_[mark % 3]; }

  Queues& queues(const Copy& copy) {
    return copy.outdated ? generation(copy.mark).outdated : generation(copy.mark).current;
  }

  void raise_target() {
    risen_.clear();
    latest_.take(copies_, static_cast<std::uint32_t>(copies_.size()), risen_);  // all of them
    for (const std::uint32_t slot : risen_) generation(target_).current.push(copies_, slot);
    ++target_;
  }

  Copies& copies_;
  Generation generations_[3];
  CopyQueue latest_;  // current, marked `target`; such as a snapshot has brought are in their generation already
  Slots risen_;       // scratch space
  std::uint32_t target_ = 1;
};

}  // namespace esd
