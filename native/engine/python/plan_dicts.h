// Plans as Python sees them: dicts of numpy arrays, which are slices of the arena's four arrays.
//
// Making an array costs a fraction of a microsecond, and an iteration has some thirty per worker. So a dict is made
// when it is asked for.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/arrays.h"
#include "common/to_numpy.h"
#include "engine/plan/plan.h"
#include "engine/python/arena_pool.h"

namespace esd {

namespace nb = nanobind;

// Slices of an arena, which goes back to the pool when the last of them is gone.
class Columns {
 public:
  Columns(Arena&& arena, const std::shared_ptr<ArenaPool>& pool);

  const Arena& arena() const { return lease_->arena; }
  nb::object u64(Span span) const { return slice(u64_, span); }
  nb::object i64(Span span) const { return slice(i64_, span); }
  nb::object u32(Span span) const { return slice(u32_, span); }
  nb::object sets(Span span) const { return slice(sets_, span); }
  nb::dict rows(const TransferSpans& transfers) const;
  nb::dict gradients(const TransferSpans& transfers) const;
  nb::dict direct(const DirectSpans& rows) const;

 private:
  static nb::object slice(const nb::object& array, Span span);

  std::shared_ptr<ArenaLease> lease_;
  nb::object u64_, i64_, u32_, sets_;
};

// The plan columns of one iteration.
class IterationColumns {
 public:
  IterationColumns(IterationPlans&& plans, const std::shared_ptr<ArenaPool>& pool)
      : columns_(std::move(plans.arena), pool), plans_(std::move(plans)) {}

  std::size_t size() const { return plans_.workers.size(); }
  nb::dict operator[](std::size_t worker) const;  // throws std::out_of_range
  nb::list all() const;

  using PerWorker = nb::ndarray<nb::numpy, std::int64_t, nb::ndim<2>>;
  using PerTable = nb::ndarray<nb::numpy, std::int64_t, nb::ndim<3>>;
  std::size_t forgotten() const { return plans_.forgotten.size; }
  std::size_t expired() const { return plans_.expired; }
  PerWorker counts() const;
  PerTable table_counts() const;
  nb::ndarray<nb::numpy, std::int64_t, nb::ndim<1>> figures() const;
  PerWorker direct() const;  // rows by table and sender

  using Features = In2<float>;
  using Lengths = In2<std::uint32_t>;
  using Weights = In1<float>;
  using Groups = In1<std::uint64_t>;
  using References = In1<std::uint64_t>;
  using Chunks = In1<std::uint32_t>;
  using Roles = In1<std::uint32_t>;
  nb::list messages(std::uint64_t epoch, const Features& dense, const Features& labels,
                    const std::optional<Lengths>& lengths, const std::optional<Weights>& weights,
                    const std::optional<Groups>& groups, const std::optional<References>& references,
                    const std::optional<Chunks>& chunks, const std::optional<Roles>& roles) const;

 private:
  Columns columns_;
  IterationPlans plans_;  // but for the arena, which is in the columns
};

nb::list to_python(FlushPlans&& plans, const std::shared_ptr<ArenaPool>& pool);

}  // namespace esd
