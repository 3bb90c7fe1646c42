// The caller's costs, checked and turned into integers: int32 where that is exact, else int64 with 51 bits for the
// largest cost.
//
// Integer arithmetic makes the optimum exact, the tie-breaking reproducible and the prices comparable. Prices
// differ by at most the largest cost, so they stay exact in a double.
#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

#include "common/hot.h"
#include "solver/fixed_point.h"

namespace esd {

// Writes the largest cost to `largest`. Returns false when a cost is negative, infinite or NaN.
template <typename C>
ESD_HOT bool all_costs_valid(const C* costs, std::int64_t size, C* largest) {
  C most = 0;
  bool valid = true;
  for (std::int64_t e = 0; e < size; ++e) {
    most = costs[e] > most ? costs[e] : most;
    valid &= costs[e] >= 0 && costs[e] <= std::numeric_limits<C>::max();
  }
  *largest = most;
  return valid;
}

// Returns the largest cost. Throws std::invalid_argument, which names the first cost that is negative, infinite or NaN.
template <typename C>
C largest_cost(const C* costs, int rows, int workers) {
  C largest;
  const std::int64_t size = static_cast<std::int64_t>(rows) * workers;
  if (all_costs_valid(costs, size, &largest)) return largest;
  for (std::int64_t e = 0; e < size; ++e)
    if (!(costs[e] >= 0 && costs[e] <= std::numeric_limits<C>::max()))
      throw std::invalid_argument("costs[" + std::to_string(e / workers) + ", " + std::to_string(e % workers) +
                                  "] is " + std::to_string(costs[e]) + ", costs must be finite and not negative");
  return largest;
}

template <typename C>
ESD_HOT bool all_integers(const C* costs, std::int64_t size, PowerOfTwo scale) {
  bool all = true;
  for (std::int64_t e = 0; e < size; ++e) all &= is_integer(scale(static_cast<double>(costs[e])));
  return all;
}

template <typename T, typename C>
ESD_HOT void round_costs(const C* costs, std::int64_t size, PowerOfTwo scale, T* out) {
  for (std::int64_t e = 0; e < size; ++e) out[e] = rounded<T>(scale(static_cast<double>(costs[e])));
}

}  // namespace esd
