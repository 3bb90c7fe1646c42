// Arrays between Python and the kernels of esd_native.rows.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <stdexcept>

namespace esd::rows {

namespace nb = nanobind;
using namespace nb::literals;

template <typename T>
using In1 = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using In2 = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Out = nb::ndarray<nb::numpy, T, nb::c_contig, nb::device::cpu>;
using InOut2 = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// The buffer of a numpy array, which the array owns. It is not initialised.
template <typename T>
struct Buffer {
  T* data;
  nb::capsule owner;

  explicit Buffer(std::size_t n) : data(new T[n]), owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); }) {}
  nb::object array(std::size_t n) const { return nb::cast(Out<T>(data, {n}, owner)); }
  nb::object array(std::size_t n, std::size_t m) const { return nb::cast(Out<T>(data, {n, m}, owner)); }
};

inline void require(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(what);
}

}  // namespace esd::rows
