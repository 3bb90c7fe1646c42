// Plans as Python sees them: dicts of numpy arrays, the columns being slices of three flat arrays.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <utility>
#include <vector>

#include "engine/arena_pool.h"

namespace esd {

namespace nb = nanobind;

template <typename T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> to_numpy(std::vector<T>&& values) {
  auto* kept = new std::vector<T>(std::move(values));
  nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return {kept->data(), {kept->size()}, owner};
}

template <typename T>
nb::ndarray<nb::numpy, T, nb::ndim<2>> to_numpy(std::vector<T>&& values, std::size_t rows, std::size_t columns) {
  auto* kept = new std::vector<T>(std::move(values));
  nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return {kept->data(), {rows, columns}, owner};
}

// The plans' arena goes back to the pool when the last of their arrays is gone.
nb::list to_python(IterationPlans&& plans, const std::shared_ptr<ArenaPool>& pool);
nb::list to_python(FlushPlans&& plans, const std::shared_ptr<ArenaPool>& pool);

}  // namespace esd
