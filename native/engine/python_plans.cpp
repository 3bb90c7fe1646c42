#include "engine/python_plans.h"

namespace esd {
namespace {

// Slices of an arena. Slicing a numpy array is several times cheaper than making one.
class Columns {
 public:
  Columns(Arena&& arena, const std::shared_ptr<ArenaPool>& pool) {
    const auto lease = std::make_shared<ArenaLease>(pool, std::move(arena));
    u64_ = borrow(lease, lease->arena.u64);
    i64_ = borrow(lease, lease->arena.i64);
    u32_ = borrow(lease, lease->arena.u32);
  }

  nb::object u64(Span span) const { return slice(u64_, span); }
  nb::object i64(Span span) const { return slice(i64_, span); }
  nb::object u32(Span span) const { return slice(u32_, span); }

  nb::dict rows(const Transfers& transfers) const {
    nb::dict columns;
    columns["ids"] = u64(transfers.ids);
    columns["slots"] = u32(transfers.slots);
    columns["versions"] = i64(transfers.versions);
    columns["early"] = transfers.early;
    columns["size"] = transfers.size;
    return columns;
  }

  nb::dict gradients(const Transfers& transfers) const {
    nb::dict columns = rows(transfers);
    columns["contributors"] = u64(transfers.contributors);
    columns["steps"] = i64(transfers.steps);
    return columns;
  }

 private:
  using Lease = std::shared_ptr<ArenaLease>;

  template <typename T>
  static nb::object borrow(const Lease& lease, Column<T>& values) {
    nb::capsule owner(new Lease(lease), [](void* p) noexcept { delete static_cast<Lease*>(p); });
    return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(values.data(), {values.size()}, owner));
  }

  static nb::object slice(const nb::object& array, Span span) {
    const nb::object range = nb::steal(PySlice_New(nb::int_(span.begin).ptr(), nb::int_(span.begin + span.size).ptr(),
                                                   nullptr));
    return nb::steal(PyObject_GetItem(array.ptr(), range.ptr()));
  }

  nb::object u64_, i64_, u32_;
};

}  // namespace

nb::list to_python(IterationPlans&& plans, const std::shared_ptr<ArenaPool>& pool) {
  const Columns columns(std::move(plans.arena), pool);
  const nb::object forgotten = columns.u64(plans.forgotten);
  nb::list result;
  for (const WorkerPlan& worker : plans.workers) {
    nb::dict plan;
    plan["forgotten"] = forgotten;
    plan["forgotten_below"] = plans.forgotten_below;
    plan["iteration"] = plans.iteration;
    plan["update_rows"] = columns.rows(worker.update_rows);
    plan["update_gradients"] = columns.gradients(worker.update_gradients);
    plan["evict_rows"] = columns.rows(worker.evict_rows);
    plan["evict_gradients"] = columns.gradients(worker.evict_gradients);
    plan["drops"] = columns.rows(worker.drops);
    plan["discards"] = columns.rows(worker.discards);
    plan["pulls"] = columns.rows(worker.pulls);
    plan["positions"] = columns.u32(worker.positions);
    plan["unique_ids"] = columns.u64(worker.unique_ids);
    plan["unique_slots"] = columns.u32(worker.unique_slots);
    plan["unique_versions"] = columns.i64(worker.unique_versions);
    plan["unique_contributors"] = columns.u64(worker.unique_contributors);
    plan["inverse"] = columns.u32(worker.inverse).attr("reshape")(worker.positions.size, plans.fields);
    result.append(plan);
  }
  return result;
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
