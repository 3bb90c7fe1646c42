// Cache replacement: which copies leave a full cache. The policies themselves are in policies.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/batch/row_sizes.h"
#include "engine/cache/hot_rows.h"
#include "engine/rows/copies.h"
#include "engine/rows/index_types.h"
#include "engine/rows/state_index.h"

namespace esd {

// The order in which one worker's copies leave. An iteration calls `outdate`, gives the cached copies that it uses a
// new stamp, and calls `choose` and `use`. A copy whose stamp changes leaves its position in the order; so does a copy
// that is discarded.
class Policy {
 public:
  virtual ~Policy() = default;

  // Appends `count` victims, the first to leave first, and takes them out of the order, which has at least that many.
  virtual void choose(std::uint32_t count, Slots& victims) = 0;

  // Hears of all copies that the iteration uses. None of them is in the order: they are new, or their stamp is.
  virtual void use(const SlotIndex* slots, std::size_t count) = 0;

  // Hears of copies that lose the latest value in iteration `now`.
  virtual void outdate(const SlotIndex* slots, std::size_t count, std::uint32_t now) = 0;

  // For snapshots: all slots in an order that rebuilds this one when they are appended one by one, and a counter.
  virtual void list(Slots& slots) const = 0;
  virtual void append(SlotIndex slot) = 0;
  virtual std::uint32_t counter() const { return 0; }
  virtual void set_counter(std::uint32_t) {}

  virtual std::size_t memory_bytes() const = 0;
};

// What a policy may know of rows besides its copies. All members outlive it. The trainings of a row in `index` are those
// before the present iteration, also while the row is checked out.
struct RowTraits {
  const RowSizes& sizes;
  const HotRows& hot;
  const StateIndex& index;
};

constexpr const char* kStatic = "static";  // the policy that needs hot rows

// `name` is `emark`, `emark-size`, `reuse`, `lru`, `lfu` or `static`; throws std::invalid_argument if it is another one.
// `copies` outlives the policy.
std::unique_ptr<Policy> make_policy(const std::string& name, Copies& copies, const RowTraits& rows);

}  // namespace esd
