// The Python module esd.native.cache_book, whose interface is documented in esd/native/cache_book.pyi: the book in which a
// worker checks its plans.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "cache_book/cache_book.h"
#include "common/arrays.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace esd::cache_book {
namespace {

using RowArrays = std::tuple<In1<std::uint64_t>, In1<std::uint32_t>, In1<std::int64_t>>;
using GradientArrays = std::tuple<In1<std::uint64_t>, In1<std::uint32_t>, In1<std::int64_t>, InSets>;

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
  const WorkerSets contributors = sets_of(std::get<3>(arrays));
  if (contributors.size != rows.count) throw std::invalid_argument("ids and contributors differ in length");
  return {rows, contributors};
}

CacheBook make_book(const std::vector<std::size_t>& rows, unsigned worker, bool keeps_copies) {
  if (rows.empty()) throw std::invalid_argument("a cache is of one table at least");
  if (worker >= kMostWorkers) {
    throw std::invalid_argument("worker is " + std::to_string(worker) + ", it must be in 0.." +
                                std::to_string(kMostWorkers - 1));
  }
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
}  // namespace esd::cache_book

NB_MODULE(cache_book, module) {
  using namespace esd::cache_book;
  module.doc() = "The book of a worker's cache. See cache_book.pyi.";
  nb::exception<Misfit>(module, "Misfit", PyExc_ValueError);
  nb::class_<CacheBook>(module, "SlotBook")
      .def(nb::new_(&make_book), "rows"_a, "worker"_a, "keeps_copies"_a = false)
      .def("enter", &enter, "where"_a, "discards"_a, "update_rows"_a, "update_gradients"_a, "evict_rows"_a,
           "evict_gradients"_a, "drops"_a, "pulls"_a, "trained"_a, "reduced"_a)
      .def("enter_flush", &enter_flush, "where"_a, "rows"_a, "gradients"_a)
      .def("enter_reload", &enter_reload, "rows"_a, "outdated"_a)
      .def("contents", &contents)
      .def_prop_ro("cached", &CacheBook::cached);
}
