// The Python module esd_native.plans, whose interface is documented in esd_native/plans.pyi: what a worker does to the
// plans that it gets.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "common/packed_column.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace esd::plans {
namespace {

template <typename T>
using In = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename T>
nb::bytes pack(const In<T>& values) {
  std::string packed;
  PackedColumn<T>(values.data(), values.size()).append_to(packed);
  return nb::bytes(packed.data(), packed.size());
}

// An array that owns its values.
template <typename T>
struct Made {
  explicit Made(std::size_t size)
      : values(new T[size]),
        array(values, {size}, nb::capsule(values, [](void* p) noexcept { delete[] static_cast<T*>(p); })) {}
  T* values;
  nb::ndarray<nb::numpy, T, nb::ndim<1>> array;
};

template <typename T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> unpack(const nb::bytes& data, std::optional<std::size_t> count) {
  const UnpackedColumn column(reinterpret_cast<const std::uint8_t*>(data.c_str()), data.size());
  if (count && column.count() != *count) {
    throw std::invalid_argument("has " + std::to_string(column.count()) + " values, there must be " +
                                std::to_string(*count));
  }
  if (!count && column.count() > 8 * data.size()) {  // values of no bits, in any number
    throw std::invalid_argument("has " + std::to_string(column.count()) + " values that are all the same");
  }
  Made<T> made(column.count());
  column.read(made.values);
  return made.array;
}

}  // namespace
}  // namespace esd::plans

NB_MODULE(plans, module) {
  using namespace esd::plans;
  module.doc() = "Plans on the worker. See plans.pyi.";
  module.def("pack", &pack<std::uint64_t>, "values"_a.noconvert());
  module.def("pack", &pack<std::uint32_t>, "values"_a.noconvert());
  module.def("pack", &pack<std::int64_t>, "values"_a.noconvert());
  module.def("unpack_uint64", &unpack<std::uint64_t>, "data"_a, "count"_a = nb::none());
  module.def("unpack_uint32", &unpack<std::uint32_t>, "data"_a, "count"_a = nb::none());
  module.def("unpack_int64", &unpack<std::int64_t>, "data"_a, "count"_a = nb::none());
}
