// The Python module esd_native.plans, whose interface is documented in esd_native/plans.pyi: what a worker does to the
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
#include <vector>

#include "common/arrays.h"
#include "common/packed_column.h"
#include "plans/cache_book.h"

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
  module.def("place", &place, "places"_a, "trained"_a, "others"_a);
  module.def("unpack_int64", &unpack<std::int64_t>, "data"_a, "count"_a = nb::none());
}
