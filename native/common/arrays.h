// Conversions of arrays between numpy and C++; to_numpy.h converts vectors.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "common/worker_sets.h"

namespace esd {

template <typename T>
using In1 = nanobind::ndarray<const T, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
template <typename T>
using In2 = nanobind::ndarray<const T, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;
template <typename T>
using InOut1 = nanobind::ndarray<T, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
template <typename T>
using InOut2 = nanobind::ndarray<T, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;
using InSets = nanobind::ndarray<const std::uint64_t, nanobind::c_contig, nanobind::device::cpu>;
template <typename T>
using Out = nanobind::ndarray<nanobind::numpy, T, nanobind::c_contig, nanobind::device::cpu>;

// The buffer of a numpy array, which the array owns. It is not initialised.
template <typename T>
struct Buffer {
  T* data;
  nanobind::capsule owner;

  explicit Buffer(std::size_t n) : data(new T[n]), owner(data, [](void* p) noexcept { delete[] static_cast<T*>(p); }) {}
  nanobind::object array(std::size_t n) const { return nanobind::cast(Out<T>(data, {n}, owner)); }
  nanobind::object array(std::size_t n, std::size_t m) const { return nanobind::cast(Out<T>(data, {n, m}, owner)); }
};

inline void require(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(what);
}

// A column of sets of workers: uint64 [rows], or uint64 [rows, 2] in a job of more than 64 workers.
inline WorkerSets sets_of(const InSets& column) {
  const bool one_word = column.ndim() == 1;
  require(one_word || (column.ndim() == 2 && column.shape(1) == 2), "a set of workers has one word, or two");
  return {column.data(), column.shape(0), one_word ? std::size_t{1} : std::size_t{2}};
}

}  // namespace esd
