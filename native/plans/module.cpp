// The Python module esd.native.plans, whose interface is documented in esd/native/plans.pyi: what a worker does to the
// plans that it gets.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/arrays.h"
#include "common/to_numpy.h"
#include "plans/cache_book.h"
#include "plans/plan_message.h"
#include "wire/packed_column.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace esd::plans {
namespace {

template <typename T>
nb::bytes pack(const In1<T>& values) {
  std::string packed;
  PackedColumn<T>(values.data(), values.size()).append_to(packed);
  return nb::bytes(packed.data(), packed.size());
}

template <typename T>
nb::object unpack(const nb::bytes& data, std::optional<std::size_t> count) {
  const UnpackedColumn column(reinterpret_cast<const std::uint8_t*>(data.c_str()), data.size());
  if (count && column.count() != *count) {
    throw std::invalid_argument("has " + std::to_string(column.count()) + " values, there must be " +
                                std::to_string(*count));
  }
  if (!count && column.count() > 8 * data.size()) {  // values of no bits, in any number
    throw std::invalid_argument("has " + std::to_string(column.count()) + " values that are all the same");
  }
  const Buffer<T> values(column.count());
  column.read(values.data);
  return values.array(column.count());
}

using RowArrays = std::tuple<In1<std::uint64_t>, In1<std::uint32_t>, In1<std::int64_t>>;
using GradientArrays = std::tuple<In1<std::uint64_t>, In1<std::uint32_t>, In1<std::int64_t>, In1<std::uint64_t>>;

template <typename Arrays>
Rows rows_of(const Arrays& arrays) {
  const auto& [ids, slots, versions] = std::tie(std::get<0>(arrays), std::get<1>(arrays), std::get<2>(arrays));
  if (slots.size() != ids.size() || versions.size() != ids.size()) {
    throw std::invalid_argument("ids, slots and versions differ in length");
  }
  return {ids.data(), slots.data(), versions.data(), ids.size()};
}

Gradients gradients_of(const GradientArrays& arrays) {
  const Rows rows = rows_of(arrays);
  if (std::get<3>(arrays).size() != rows.count) throw std::invalid_argument("ids and contributors differ in length");
  return {rows, std::get<3>(arrays).data()};
}

// Rows that are named by their places among the trained ones, or are the next of the others.
nb::tuple place(const In1<std::uint32_t>& places, const RowArrays& trained, const RowArrays& others) {
  const Rows here = rows_of(trained), elsewhere = rows_of(others);
  const Buffer<std::uint64_t> ids(places.size());
  const Buffer<std::uint32_t> slots(places.size());
  const Buffer<std::int64_t> versions(places.size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const bool trains = places(i) < here.count;
    if (places(i) > here.count) {
      throw std::invalid_argument("contains " + std::to_string(places(i)) + ", there are " +
                                  std::to_string(here.count) + " unique_ids");
    }
    const Rows& rows = trains ? here : elsewhere;
    const std::size_t at = trains ? places(i) : next++;
    if (at >= rows.count) continue;
    ids.data[i] = rows.ids[at];
    slots.data[i] = rows.slots[at];
    versions.data[i] = rows.versions[at];
  }
  if (next != elsewhere.count) {
    throw std::invalid_argument("leaves " + std::to_string(next) + " rows to ids, which has " +
                                std::to_string(elsewhere.count));
  }
  return nb::make_tuple(ids.array(places.size()), slots.array(places.size()), versions.array(places.size()));
}

// Rows, gradients and direct rows as tuples of columns; None where there are none, which is most of the time.
nb::object rows_to(RowColumns&& rows) {
  if (rows.ids.empty()) return nb::none();
  return nb::make_tuple(to_numpy(std::move(rows.ids)), to_numpy(std::move(rows.slots)),
                        to_numpy(std::move(rows.versions)), rows.early);
}

nb::object gradients_to(GradientColumns&& gradients) {
  if (gradients.rows.ids.empty()) return nb::none();
  return nb::make_tuple(rows_to(std::move(gradients.rows)), to_numpy(std::move(gradients.contributors)),
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
  columns["unique_contributors"] = to_numpy(std::move(plan.unique_contributors));
  columns["inverse"] = to_numpy(std::move(plan.inverse));
  columns["dense"] = to_numpy(std::move(plan.dense), m, plan.dense_features);
  columns["labels"] = to_numpy(std::move(plan.labels), m, plan.labels_per_sample);
  columns["forgotten"] = to_numpy(std::move(plan.forgotten));
  columns["forgotten_below"] = plan.forgotten_below;
  columns["discards"] = rows_to(std::move(plan.discards));
  if (plan.has_lengths) columns["lengths"] = to_numpy(std::move(plan.lengths), m, plan.fields);
  if (plan.has_weights) columns["weights"] = to_numpy(std::move(plan.weights));
  if (plan.has_groups) columns["groups"] = to_numpy(std::move(plan.groups));
  columns["replicated"] = to_numpy(std::move(plan.replicated));
  columns["direct_pushes"] = direct_to(std::move(plan.direct_pushes));
  columns["direct_pulls"] = direct_to(std::move(plan.direct_pulls));
  return columns;
}

nb::object read_plans(const nb::bytes& data, std::uint64_t features, std::uint64_t length, std::uint64_t ids,
                      std::uint64_t workers) {
  ReadMessage message;
  try {
    message = read_message(reinterpret_cast<const std::uint8_t*>(data.c_str()), data.size(),
                           {features, length, ids, workers});
  } catch (const std::invalid_argument&) {
    return nb::none();
  }
  nb::list plans;
  for (ReadPlan& plan : message.plans) plans.append(plan_to(std::move(plan)));
  return nb::make_tuple(plans, nb::bytes(message.rest.data(), message.rest.size()));
}

CacheBook make_book(const std::vector<std::size_t>& rows, unsigned worker, bool keeps_copies) {
  if (rows.empty()) throw std::invalid_argument("a cache is of one table at least");
  if (worker > 63) throw std::invalid_argument("worker is " + std::to_string(worker) + ", it must be in 0..63");
  return {rows, worker, keeps_copies};
}

void enter(CacheBook& book, const std::string& where, const RowArrays& discards, const RowArrays& update_rows,
           const GradientArrays& update_gradients, const RowArrays& evict_rows, const GradientArrays& evict_gradients,
           const RowArrays& drops, const RowArrays& pulls, const GradientArrays& trained,
           const In1<std::uint32_t>& replicated) {
  const PlanColumns plan{rows_of(discards),   rows_of(update_rows),          gradients_of(update_gradients),
                         rows_of(evict_rows), gradients_of(evict_gradients), rows_of(drops),
                         rows_of(pulls),      gradients_of(trained),         replicated.data(),
                         replicated.size()};
  book.enter(plan, where);
}

void enter_flush(CacheBook& book, const std::string& where, const RowArrays& rows, const GradientArrays& gradients) {
  book.enter_flush(rows_of(rows), gradients_of(gradients), where);
}

void enter_reload(CacheBook& book, const RowArrays& rows, const RowArrays& outdated) {
  book.enter_reload(rows_of(rows), rows_of(outdated));
}

nb::tuple contents(const CacheBook& book) {
  const Buffer<std::uint64_t> ids(book.size());
  const Buffer<std::int64_t> versions(book.size());
  const Buffer<std::uint8_t> states(book.size());
  book.copy_to(ids.data, versions.data, states.data);
  return nb::make_tuple(ids.array(book.size()), versions.array(book.size()), states.array(book.size()));
}

}  // namespace
}  // namespace esd::plans

NB_MODULE(plans, module) {
  using namespace esd::plans;
  module.doc() = "Plans on the worker. See plans.pyi.";
  nb::exception<Misfit>(module, "Misfit", PyExc_ValueError);
  nb::class_<CacheBook>(module, "SlotBook")
      .def(nb::new_(&make_book), "rows"_a, "worker"_a, "keeps_copies"_a = false)
      .def("enter", &enter, "where"_a, "discards"_a, "update_rows"_a, "update_gradients"_a, "evict_rows"_a,
           "evict_gradients"_a, "drops"_a, "pulls"_a, "trained"_a, "replicated"_a)
      .def("enter_flush", &enter_flush, "where"_a, "rows"_a, "gradients"_a)
      .def("enter_reload", &enter_reload, "rows"_a, "outdated"_a)
      .def("contents", &contents)
      .def_prop_ro("cached", &CacheBook::cached);
  module.def("pack", &pack<std::uint64_t>, "values"_a.noconvert());
  module.def("pack", &pack<std::uint32_t>, "values"_a.noconvert());
  module.def("pack", &pack<std::int64_t>, "values"_a.noconvert());
  module.def("unpack_uint64", &unpack<std::uint64_t>, "data"_a, "count"_a = nb::none());
  module.def("unpack_uint32", &unpack<std::uint32_t>, "data"_a, "count"_a = nb::none());
  module.def("read_plans", &read_plans, "data"_a, "features"_a, "length"_a, "ids"_a, "workers"_a);
  module.def("place", &place, "places"_a, "trained"_a, "others"_a);
  module.def("unpack_int64", &unpack<std::int64_t>, "data"_a, "count"_a = nb::none());
}
