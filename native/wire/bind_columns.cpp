// The part of esd.native.wire that is about packed columns.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "common/arrays.h"
#include "wire/module.h"
#include "wire/packed_column.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace esd::wire {
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

}  // namespace

void bind_columns(nb::module_& m) {
  m.def("pack", &pack<std::uint64_t>, "values"_a.noconvert());
  m.def("pack", &pack<std::uint32_t>, "values"_a.noconvert());
  m.def("pack", &pack<std::int64_t>, "values"_a.noconvert());
  m.def("unpack_uint64", &unpack<std::uint64_t>, "data"_a, "count"_a = nb::none());
  m.def("unpack_uint32", &unpack<std::uint32_t>, "data"_a, "count"_a = nb::none());
  m.def("unpack_int64", &unpack<std::int64_t>, "data"_a, "count"_a = nb::none());
}

}  // namespace esd::wire
