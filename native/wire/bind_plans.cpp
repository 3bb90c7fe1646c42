// The part of esd.native.wire that is about plans.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "common/arrays.h"
#include "common/to_numpy.h"
#include "wire/module.h"
#include "wire/packed_column.h"
#include "wire/placed_rows.h"
#include "wire/plan_reader.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace esd::wire {
namespace {

using RowArrays = std::tuple<In1<std::uint64_t>, In1<std::uint32_t>, In1<std::int64_t>>;

RowSpan span_of(const RowArrays& arrays) {
  const auto& [ids, slots, versions] = arrays;
  require(slots.size() == ids.size() && versions.size() == ids.size(), "ids, slots and versions differ in length");
  return {ids.data(), slots.data(), versions.data(), ids.size()};
}

nb::tuple place(const In1<std::uint32_t>& places, const RowArrays& trained, const RowArrays& others) {
  const std::size_t count = places.size();
  const Buffer<std::uint64_t> ids(count);
  const Buffer<std::uint32_t> slots(count);
  const Buffer<std::int64_t> versions(count);
  place_rows(places.data(), count, span_of(trained), span_of(others),
             [&](std::size_t i, const RowSpan& rows, std::size_t at) {
               ids.data[i] = rows.ids[at];
               slots.data[i] = rows.slots[at];
               versions.data[i] = rows.versions[at];
             });
  return nb::make_tuple(ids.array(count), slots.array(count), versions.array(count));
}

// Rows, gradients and direct rows as tuples of columns; None where there are none, which is most of the time.
nb::object rows_to(RowColumns&& rows) {
  if (rows.ids.empty()) return nb::none();
  return nb::make_tuple(to_numpy(std::move(rows.ids)), to_numpy(std::move(rows.slots)),
                        to_numpy(std::move(rows.versions)), rows.early);
}

// Sets of workers: uint64 [r], or uint64 [r, 2].
nb::object sets_to(SetColumn&& column) {
  if (column.sets().words == 1) return to_numpy(std::move(column.words)).cast();
  return to_numpy(std::move(column.words), column.rows, 2).cast();
}

nb::object gradients_to(GradientColumns&& gradients) {
  if (gradients.rows.ids.empty()) return nb::none();
  return nb::make_tuple(rows_to(std::move(gradients.rows)), sets_to(std::move(gradients.contributors)),
                        to_numpy(std::move(gradients.steps)));
}

nb::object direct_to(DirectColumns&& direct) {
  if (direct.places.empty()) return nb::none();
  return nb::make_tuple(to_numpy(std::move(direct.places)), to_numpy(std::move(direct.peers)));
}

nb::dict plan_to(ReadPlan&& plan) {
  const std::size_t m = plan.samples;
  nb::dict columns;
  columns["epoch"] = plan.epoch;
  columns["iteration"] = plan.iteration;
  columns["batch_size"] = plan.batch_size;
  columns["update_rows"] = rows_to(std::move(plan.update_rows));
  columns["update_gradients"] = gradients_to(std::move(plan.update_gradients));
  columns["evict_rows"] = rows_to(std::move(plan.evict_rows));
  columns["evict_gradients"] = gradients_to(std::move(plan.evict_gradients));
  columns["drops"] = rows_to(std::move(plan.drops));
  columns["pulls"] = rows_to(std::move(plan.pulls));
  columns["positions"] = to_numpy(std::move(plan.positions));
  columns["unique_ids"] = to_numpy(std::move(plan.unique.ids));
  columns["unique_slots"] = to_numpy(std::move(plan.unique.slots));
  columns["unique_versions"] = to_numpy(std::move(plan.unique.versions));
  columns["unique_contributors"] = sets_to(std::move(plan.unique_contributors));
  columns["inverse"] = to_numpy(std::move(plan.inverse));
  columns["dense"] = to_numpy(std::move(plan.dense), m, plan.dense_features);
  columns["labels"] = to_numpy(std::move(plan.labels), m, plan.labels_per_sample);
  columns["forgotten"] = to_numpy(std::move(plan.forgotten));
  columns["forgotten_below"] = plan.forgotten_below;
  columns["discards"] = rows_to(std::move(plan.discards));
  if (plan.has_lengths) columns["lengths"] = to_numpy(std::move(plan.lengths), m, plan.fields);
  if (plan.has_weights) columns["weights"] = to_numpy(std::move(plan.weights));
  if (plan.has_groups) columns["groups"] = to_numpy(std::move(plan.groups));
  if (plan.has_references) columns["references"] = to_numpy(std::move(plan.references));
  columns["lists"] = plan.lists;
  columns["reduced"] = to_numpy(std::move(plan.reduced));
  columns["direct_pushes"] = direct_to(std::move(plan.direct_pushes));
  columns["direct_pulls"] = direct_to(std::move(plan.direct_pulls));
  if (!plan.initial_ids.empty()) columns["initial_ids"] = to_numpy(std::move(plan.initial_ids));
  if (!plan.trace_parent.empty()) columns["trace_parent"] = nb::str(plan.trace_parent.data(), plan.trace_parent.size());
  if (plan.dense_role != 0) columns["dense_role"] = plan.dense_role;
  return columns;
}

nb::object plans_of(const nb::bytes& data, std::uint64_t features, std::uint64_t length, std::uint64_t ids,
                    std::uint64_t workers) {
  ReadPlans message;
  try {
    message = read_plans({reinterpret_cast<const std::uint8_t*>(data.c_str()), data.size()},
                         {features, length, ids, workers});
  } catch (const std::invalid_argument&) {
    return nb::none();
  }
  nb::list plans;
  for (ReadPlan& plan : message.plans) plans.append(plan_to(std::move(plan)));
  return nb::make_tuple(plans, nb::bytes(message.rest.data(), message.rest.size()));
}

}  // namespace

void bind_plans(nb::module_& m) {
  m.def(
      "claims",
      [](const nb::bytes& data, std::uint64_t count) {
        try {
          return UnpackedColumn(static_cast<const std::uint8_t*>(data.data()), data.size()).count() == count;
        } catch (const std::invalid_argument&) {
          return false;
        }
      },
      "data"_a, "count"_a);
  m.def("read_plans", &plans_of, "data"_a, "features"_a, "length"_a, "ids"_a, "workers"_a);
  m.def("place", &place, "places"_a, "trained"_a, "others"_a);
}

}  // namespace esd::wire
