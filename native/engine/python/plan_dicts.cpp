#include "engine/python/plan_dicts.h"

#include <stdexcept>
#include <string>

#include "engine/memory/column.h"
#include "wire/plan_writer.h"

namespace esd {
namespace {

using Lease = std::shared_ptr<ArenaLease>;

template <typename T>
nb::object borrow(const Lease& lease, Column<T>& values) {
  nb::capsule owner(new Lease(lease), [](void* p) noexcept { delete static_cast<Lease*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(values.data(), {values.size()}, owner));
}

// Sets of workers as their words: uint64 [rows], or [rows, 2] with the lower word first.
nb::object borrow_sets(const Lease& lease) {
  constexpr std::size_t kWords = sizeof(WorkerSet) / sizeof(std::uint64_t);
  Column<WorkerSet>& sets = lease->arena.sets;
  const nb::capsule owner(new Lease(lease), [](void* p) noexcept { delete static_cast<Lease*>(p); });
  const std::size_t shape[] = {sets.size(), kWords};
  return nb::cast(nb::ndarray<nb::numpy, std::uint64_t>(sets.data(), kWords == 1 ? 1 : 2, shape, owner));
}

}  // namespace

Columns::Columns(Arena&& arena, const std::shared_ptr<ArenaPool>& pool) {
  lease_ = std::make_shared<ArenaLease>(pool, std::move(arena));
  u64_ = borrow(lease_, lease_->arena.u64);
  i64_ = borrow(lease_, lease_->arena.i64);
  u32_ = borrow(lease_, lease_->arena.u32);
  sets_ = borrow_sets(lease_);
}

nb::dict Columns::rows(const TransferSpans& transfers) const {
  nb::dict columns;
  columns["ids"] = u64(transfers.ids);
  columns["slots"] = u32(transfers.slots);
  columns["versions"] = i64(transfers.versions);
  columns["early"] = transfers.early;
  return columns;
}

nb::dict Columns::gradients(const TransferSpans& transfers) const {
  nb::dict columns = rows(transfers);
  columns["contributors"] = sets(transfers.contributors);
  columns["steps"] = i64(transfers.steps);
  return columns;
}

nb::dict Columns::direct(const DirectSpans& rows) const {
  nb::dict columns;
  columns["places"] = u32(rows.places);
  columns["peers"] = u32(rows.peers);
  return columns;
}

// Slicing a numpy array is several times cheaper than making one.
nb::object Columns::slice(const nb::object& array, Span span) {
  const nb::object range =
      nb::steal(PySlice_New(nb::int_(span.begin).ptr(), nb::int_(span.begin + span.size).ptr(), nullptr));
  return nb::steal(PyObject_GetItem(array.ptr(), range.ptr()));
}

nb::dict IterationColumns::operator[](std::size_t worker) const {
  if (worker >= size()) {
    throw std::out_of_range("worker " + std::to_string(worker) + " of " + std::to_string(size()));
  }
  const WorkerPlan& spans = plans_.workers[worker];
  nb::dict plan;
  plan["forgotten"] = columns_.u64(plans_.forgotten);
  plan["forgotten_below"] = plans_.forgotten_below;
  plan["iteration"] = plans_.iteration;
  plan["update_rows"] = columns_.rows(spans.update_rows);
  plan["update_gradients"] = columns_.gradients(spans.update_gradients);
  plan["evict_rows"] = columns_.rows(spans.evict_rows);
  plan["evict_gradients"] = columns_.gradients(spans.evict_gradients);
  plan["drops"] = columns_.rows(spans.drops);
  plan["discards"] = columns_.rows(spans.discards);
  plan["pulls"] = columns_.rows(spans.pulls);
  plan["positions"] = columns_.u32(spans.positions);
  plan["unique_ids"] = columns_.u64(spans.unique_ids);
  plan["unique_slots"] = columns_.u32(spans.unique_slots);
  plan["unique_versions"] = columns_.i64(spans.unique_versions);
  plan["unique_contributors"] = columns_.sets(spans.unique_contributors);
  plan["reduced"] = columns_.u32(spans.reduced);
  plan["direct_pushes"] = columns_.direct(spans.direct_pushes);
  plan["direct_pulls"] = columns_.direct(spans.direct_pulls);
  plan["inverse"] = columns_.u32(spans.inverse);
  plan["initial_ids"] = columns_.u64(spans.initial_ids);
  return plan;
}

nb::list IterationColumns::messages(std::uint64_t epoch, const Features& dense, const Features& labels,
                                    const std::optional<Lengths>& lengths, const std::optional<Weights>& weights,
                                    const std::optional<Groups>& groups, const std::optional<References>& references,
                                    const std::optional<Chunks>& chunks, const std::optional<Roles>& roles) const {
  std::size_t samples = 0;
  for (const WorkerPlan& plan : plans_.workers) samples += plan.positions.size;
  const auto check = [&](const char* column, std::size_t rows) {
    if (rows == samples) return;
    throw std::invalid_argument(std::string(column) + " has " + std::to_string(rows) + " rows, the batch has " +
                                std::to_string(samples) + " samples");
  };
  check("dense", dense.shape(0));
  check("labels", labels.shape(0));
  if (weights) check("weights", weights->size());
  if (groups) check("groups", groups->size());
  if (references) check("references", references->size());
  if (lengths) check("lengths", lengths->shape(0));
  if (lengths && lengths->shape(1) != plans_.fields) {
    throw std::invalid_argument("lengths has " + std::to_string(lengths->shape(1)) + " columns, the batch has " +
                                std::to_string(plans_.fields) + " fields");
  }
  if (roles && roles->size() != size()) {
    throw std::invalid_argument("roles has " + std::to_string(roles->size()) + " entries, there are " +
                                std::to_string(size()) + " workers");
  }
  const std::size_t lists = chunks ? chunks->size() : 0;
  if (lists > samples || (lists > 0 && !lengths)) {
    throw std::invalid_argument("chunks has " + std::to_string(lists) + " lists, the batch has " +
                                std::to_string(samples) + " samples with them, and they need lengths");
  }
  const wire::PlanContext context{epoch,
                                  samples - lists,
                                  dense.data(),
                                  dense.shape(1),
                                  labels.data(),
                                  labels.shape(1),
                                  lengths ? lengths->data() : nullptr,
                                  weights ? weights->data() : nullptr,
                                  groups ? groups->data() : nullptr,
                                  references ? references->data() : nullptr,
                                  chunks ? chunks->data() : nullptr,
                                  roles ? roles->data() : nullptr};
  std::vector<std::string> encoded;
  {
    const nb::gil_scoped_release released;
    for (std::size_t j = 0; j < size(); ++j)
      encoded.push_back(wire::plan_message(plans_, columns_.arena(), j, context));
  }
  nb::list messages;
  for (const std::string& message : encoded) messages.append(nb::bytes(message.data(), message.size()));
  return messages;
}

nb::list IterationColumns::all() const {
  nb::list plans;
  for (std::size_t worker = 0; worker < size(); ++worker) plans.append((*this)[worker]);
  return plans;
}

IterationColumns::PerWorker IterationColumns::counts() const {
  const std::size_t n = size();
  std::vector<std::int64_t> counts(8 * n);
  for (std::size_t j = 0; j < n; ++j) {
    const WorkerPlan& plan = plans_.workers[j];
    counts[j] = static_cast<std::int64_t>(plan.pulls.ids.size);
    counts[n + j] = static_cast<std::int64_t>(plan.update_rows.ids.size);
    counts[2 * n + j] = static_cast<std::int64_t>(plan.update_gradients.ids.size);
    counts[3 * n + j] = static_cast<std::int64_t>(plan.evict_rows.ids.size);
    counts[4 * n + j] = static_cast<std::int64_t>(plan.evict_gradients.ids.size);
    counts[5 * n + j] = static_cast<std::int64_t>(plan.drops.ids.size);
    counts[6 * n + j] = static_cast<std::int64_t>(plan.lookups());
    counts[7 * n + j] = static_cast<std::int64_t>(plan.hits());
  }
  return to_numpy(std::move(counts), 8, n);
}

nb::ndarray<nb::numpy, std::int64_t, nb::ndim<1>> IterationColumns::figures() const {
  return to_numpy(std::vector<std::int64_t>(plans_.figures));
}

IterationColumns::PerTable IterationColumns::table_counts() const {
  constexpr std::size_t kLookups = 5, kHits = 6, kStateless = 7, kInitial = 8, kKinds = 9;
  const std::size_t n = size(), tables = plans_.tables;
  std::vector<std::int64_t> counts(tables * kKinds * n);
  for (std::size_t j = 0; j < n; ++j) {
    const WorkerPlan& plan = plans_.workers[j];
    const Span of_kinds[] = {plan.pulls.ids,      plan.update_rows.ids,     plan.update_gradients.ids,
                             plan.evict_rows.ids, plan.evict_gradients.ids, plan.unique_ids};
    for (std::size_t kind = 0; kind <= kLookups; ++kind) {
      if (tables == 1) {
        counts[kind * n + j] = static_cast<std::int64_t>(of_kinds[kind].size);
        continue;
      }
      const std::uint64_t* const ids = columns_.arena().u64.data() + of_kinds[kind].begin;
      for (std::size_t i = 0; i < of_kinds[kind].size; ++i) ++counts[(table_in(ids[i]) * kKinds + kind) * n + j];
    }
    const auto at = [&](Span of_tables, std::size_t t) {
      return of_tables.size == 0 ? 0 : columns_.arena().u32[of_tables.begin + t];
    };
    for (std::size_t t = 0; t < tables; ++t) {
      std::int64_t* const of_table = counts.data() + t * kKinds * n + j;
      of_table[kLookups * n] -= at(plan.idle, t);
      of_table[kHits * n] = of_table[kLookups * n] - (of_table[0] - at(plan.idle_pulls, t));
      of_table[kStateless * n] = at(plan.stateless_pulls, t);
      of_table[kInitial * n] = at(plan.initial_pulls, t);
    }
  }
  return to_numpy(std::move(counts), tables, kKinds, n);
}

IterationColumns::PerWorker IterationColumns::direct() const {
  const std::size_t n = size();
  std::vector<std::int64_t> counts(plans_.tables * n);
  for (std::size_t j = 0; j < n; ++j) {
    const WorkerPlan& plan = plans_.workers[j];
    const std::uint64_t* const ids = columns_.arena().u64.data() + plan.update_rows.ids.begin;
    const std::uint32_t* const places = columns_.arena().u32.data() + plan.direct_pushes.places.begin;
    for (std::size_t i = 0; i < plan.direct_pushes.places.size; ++i) {
      ++counts[(plans_.tables == 1 ? 0 : table_in(ids[places[i]])) * n + j];
    }
  }
  return to_numpy(std::move(counts), plans_.tables, n);
}

nb::list to_python(FlushPlans&& plans, const std::shared_ptr<ArenaPool>& pool) {
  const Columns columns(std::move(plans.arena), pool);
  nb::list result;
  for (const WorkerFlush& worker : plans.workers) {
    nb::dict plan;
    plan["iteration"] = plans.iteration;
    plan["rows"] = columns.rows(worker.rows);
    plan["gradients"] = columns.gradients(worker.gradients);
    result.append(plan);
  }
  return result;
}

}  // namespace esd
