// Vectors handed to numpy without a copy.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace esd {

// An array that owns the values: of the given shape, which may omit values at the end, or of one dimension.
template <typename T, typename... Sizes>
auto to_numpy(std::vector<T> values, Sizes... shape) {
  constexpr std::size_t kDimensions = std::max<std::size_t>(1, sizeof...(Sizes));
  auto kept = std::make_unique<std::vector<T>>(std::move(values));
  T* const data = kept->data();
  std::size_t sizes[kDimensions] = {kept->size()};
  if constexpr (sizeof...(Sizes) > 0) {
    std::size_t at = 0;
    ((sizes[at++] = static_cast<std::size_t>(shape)), ...);
  }
  const nanobind::capsule owner(kept.release(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<kDimensions>>(data, kDimensions, sizes, owner);
}

}  // namespace esd
