// The cache policies. A policy is a class here and a line in `make_policy`.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

#include "engine/cache/hot_rows.h"
#include "engine/cache/policy.h"
#include "engine/cache/queues.h"
#include "engine/rows/copies.h"
#include "engine/rows/index_types.h"
#include "engine/rows/state_index.h"

namespace esd {
namespace {

// Emark (ESD paper, section 8.1): outdated copies leave first, then by mark, then by frequency.
//
// A used copy is marked `target`. When a victim is needed and every copy that may leave is current and marked `target`,
// the target rises. So only the two latest marks are left when an iteration ends (copies that it uses may not leave,
// and are marked anew): three generations, indexed by mark modulo 3, hold all copies at any time.
//
// `Queues` order the copies of one mark: by frequency, or by frequency per size (section 8.2). Current copies with the
// latest mark wait in order of their last use: most are used again, or outdated, before the target rises and one may
// leave.
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

  void use(const SlotIndex* slots, std::size_t count) override {
    for (std::size_t i = 0; i < count; ++i) {
      Copy& copy = copies_[slots[i]];
      copy.frequency = next_frequency(copy.frequency);
      copy.mark = target_;
      copy.outdated = 0;
      latest_.push(copies_, slots[i]);
    }
  }

  void outdate(const SlotIndex* slots, std::size_t count, std::uint32_t now) override {
    for (std::size_t i = 0; i < count; ++i) {
      if (i + kAhead < count) __builtin_prefetch(&copies_[slots[i + kAhead]], 1);
      const SlotIndex slot = slots[i];
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

  void append(SlotIndex slot) override { queues(copies_[slot]).push(copies_, slot); }
  std::uint32_t counter() const override { return target_; }
  void set_counter(std::uint32_t target) override { target_ = target; }

  std::size_t memory_bytes() const override {
    std::size_t bytes = sizeof *this + latest_.memory_bytes() + risen_.capacity() * sizeof(SlotIndex);
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
    for (const SlotIndex slot : risen_) generation(target_).current.push(copies_, slot);
    ++target_;
  }

  Copies& copies_;
  Generation generations_[3];
  CopyQueue latest_;  // current, marked `target`; those that a snapshot has brought are in their generation already
  Slots risen_;       // scratch space
  std::uint32_t target_ = 1;
};

// Outdated copies leave first, those that lost the latest value first. Then those of the rows that were trained least
// often, by any worker, for the time since then (`ReuseQueues`): a guess at what is used again soonest. Emark's frequency
// begins anew whenever a row is cached; trainings do not, so a row that comes and goes is known for what it is.
class ReusePolicy final : public Policy {
 public:
  ReusePolicy(Copies& copies, const StateIndex& index) : copies_(copies), index_(index) {}

  void choose(std::uint32_t count, Slots& victims) override {
    current_.take(copies_, outdated_.take(copies_, count, victims), now_, victims);
  }

  void use(const SlotIndex* slots, std::size_t count) override {
    for (std::size_t i = 0; i < count; ++i) {
      if (i + kAhead < count) index_.prefetch(copies_[slots[i + kAhead]].row);
      Copy& copy = copies_[slots[i]];
      copy.mark = std::min<std::uint32_t>(index_[copy.row].trainings + 1, ReuseQueues::kMostTrainings);
      copy.outdated = 0;
      current_.push(copies_, slots[i]);
    }
  }

  void outdate(const SlotIndex* slots, std::size_t count, std::uint32_t now) override {
    now_ = now;
    for (std::size_t i = 0; i < count; ++i) {
      Copy& copy = copies_[slots[i]];
      copy.stamp = outdate_stamp(now);
      copy.outdated = 1;
      outdated_.push(copies_, slots[i]);
    }
  }

  void list(Slots& slots) const override {
    outdated_.append_to(copies_, slots);
    current_.append_to(copies_, slots);
  }

  void append(SlotIndex slot) override {
    if (copies_[slot].outdated) return outdated_.push(copies_, slot);
    current_.push(copies_, slot);
  }

  std::size_t memory_bytes() const override {
    return sizeof *this + outdated_.memory_bytes() + current_.memory_bytes();
  }

 private:
  static constexpr std::size_t kAhead = 24;  // rows prefetched

  Copies& copies_;
  const StateIndex& index_;
  CopyQueue outdated_;
  ReuseQueues current_;
  std::uint32_t now_ = 0;  // the iteration, of which `outdate` tells before `choose` is called
};

// A policy that keeps all copies in one order, outdated ones or not, in which a copy that is used goes back to the end.
//
// For LRU this is a queue: the copy whose last use is longest ago leaves first. For LFU it is frequency queues: the
// copy with the fewest uses since it was cached leaves first, then the one used longest ago.
template <typename Order>
class OrderedPolicy final : public Policy {
 public:
  explicit OrderedPolicy(Copies& copies) : copies_(copies) {}

  void choose(std::uint32_t count, Slots& victims) override { order_.take(copies_, count, victims); }

  void use(const SlotIndex* slots, std::size_t count) override {
    for (std::size_t i = 0; i < count; ++i) {
      Copy& copy = copies_[slots[i]];
      copy.frequency = next_frequency(copy.frequency);
      copy.outdated = 0;
      order_.push(copies_, slots[i]);
    }
  }

  void outdate(const SlotIndex* slots, std::size_t count, std::uint32_t) override {
    for (std::size_t i = 0; i < count; ++i) copies_[slots[i]].outdated = 1;
  }

  void list(Slots& slots) const override { order_.append_to(copies_, slots); }
  void append(SlotIndex slot) override { order_.push(copies_, slot); }
  std::size_t memory_bytes() const override { return sizeof *this + order_.memory_bytes(); }

 private:
  Copies& copies_;
  Order order_;
};

using LruPolicy = OrderedPolicy<CopyQueue>;
using LfuPolicy = OrderedPolicy<FrequencyQueues>;

// Static (ESD paper, section 6.1): rows of the hot set stay, the others come and go between them, least recently used
// first.
//
// Only where one iteration's other rows need more room than there is does a hot row leave, too. A copy counts as hot
// from its first use after the set is chosen.
class StaticPolicy final : public Policy {
 public:
  StaticPolicy(Copies& copies, const HotRows& hot_rows) : copies_(copies), hot_rows_(hot_rows) {}

  void choose(std::uint32_t count, Slots& victims) override {
    hot_.take(copies_, others_.take(copies_, count, victims), victims);
  }

  void use(const SlotIndex* slots, std::size_t count) override {
    for (std::size_t i = 0; i < count; ++i) {
      Copy& copy = copies_[slots[i]];
      copy.mark = hot_rows_[copy.row];
      copy.outdated = 0;
      queue(copy).push(copies_, slots[i]);
    }
  }

  void outdate(const SlotIndex* slots, std::size_t count, std::uint32_t) override {
    for (std::size_t i = 0; i < count; ++i) copies_[slots[i]].outdated = 1;
  }

  void list(Slots& slots) const override {
    others_.append_to(copies_, slots);
    hot_.append_to(copies_, slots);
  }
  void append(SlotIndex slot) override { queue(copies_[slot]).push(copies_, slot); }

  std::size_t memory_bytes() const override { return sizeof *this + others_.memory_bytes() + hot_.memory_bytes(); }

 private:
  CopyQueue& queue(const Copy& copy) { return copy.mark ? hot_ : others_; }

  Copies& copies_;
  const HotRows& hot_rows_;
  CopyQueue hot_, others_;
};

}  // namespace

std::unique_ptr<Policy> make_policy(const std::string& name, Copies& copies, const RowTraits& rows) {
  if (name == "emark") return std::make_unique<EmarkPolicy<FrequencyQueues>>(copies, FrequencyQueues());
  if (name == "emark-size") return std::make_unique<EmarkPolicy<SizedQueues>>(copies, SizedQueues(rows.sizes));
  if (name == "reuse") return std::make_unique<ReusePolicy>(copies, rows.index);
  if (name == "lru") return std::make_unique<LruPolicy>(copies);
  if (name == "lfu") return std::make_unique<LfuPolicy>(copies);
  if (name == kStatic) return std::make_unique<StaticPolicy>(copies, rows.hot);
  throw std::invalid_argument("cache policy '" + name +
                              "' is unknown; there are emark, emark-size, reuse, lru, lfu and static");
}

}  // namespace esd
