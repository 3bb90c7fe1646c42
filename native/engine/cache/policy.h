// Cache replacement: which copies leave a full cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/batch/row_sizes.h"
#include "engine/cache/hot_rows.h"
#include "engine/rows/copies.h"

namespace esd {

// The order of one worker's copies. An iteration lets its policy hear of outdated copies, gives the cached copies that it
// uses a new stamp, lets the policy choose victims, and hear of all used copies, in that order. A copy whose stamp changes
// leaves its place; so does one that is taken away.
class Policy {
 public:
  virtual ~Policy() = default;

  // Takes `count` copies out of the order, first to leave first. There are so many.
  virtual void choose(std::uint32_t count, Slots& victims) = 0;

  // All copies that the iteration uses, none of which is in the order: they are new, or their stamp is.
  virtual void use(const std::uint32_t* slots, std::size_t count) = 0;

  // Copies that lose the latest value in iteration `now`.
  virtual void outdate(const std::uint32_t* slots, std::size_t count, std::uint32_t now) = 0;

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
