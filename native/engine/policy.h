// Cache replacement: which copies leave a full cache.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/copies.h"
#include "engine/hot_rows.h"
#include "engine/row_sizes.h"

namespace esd {

constexpr std::uint16_t kMaxFrequency = 1023;  // counted no further

inline std::uint16_t next_frequency(std::uint16_t frequency) {
  return std::min<std::uint16_t>(frequency + 1, kMaxFrequency);
}

// The order of one worker's copies. An iteration pins the cached copies that it uses, and lets its policy hear of
// outdated copies, choose victims, and hear of used copies, in that order.
class Policy {
 public:
  virtual ~Policy() = default;

  // Takes `count` copies out of the order, first to leave first; never pinned ones. So many others exist.
  virtual void choose(std::uint32_t count, Slots& victims) = 0;

  // All copies that iteration `now` uses, and those of them that were there before, the pinned ones. Unpins.
  virtual void use(const Slots& pinned, const Slots& slots, std::uint32_t now) = 0;

  // Copies, none of them pinned, that lose the latest value in iteration `now`.
  virtual void outdate(const Slots& slots, std::uint32_t now) = 0;

  // A copy leaves out of turn; it is not pinned.
  virtual void remove(std::uint32_t slot) = 0;

  // Snapshot: all slots in an order that rebuilds this one when appended one by one, and a counter.
  virtual void list(Slots& slots) const = 0;
  virtual void append(std::uint32_t slot) = 0;
  virtual std::uint32_t counter() const { return 0; }
  virtual void set_counter(std::uint32_t) {}

  virtual std::size_t memory_bytes() const = 0;
};

// What a policy may know of rows besides its copies. Both outlive it.
struct RowTraits {
  const RowSizes& sizes;
  const HotRows& hot;
};

constexpr const char* kStatic = "static";

// `emark`, `emark-size`, `lru`, `lfu` or `static`; throws std::invalid_argument for any other name.
std::unique_ptr<Policy> make_policy(const std::string& name, Copies& copies, const RowTraits& rows);

}  // namespace esd
