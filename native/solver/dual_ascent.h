// Dual steepest ascent (Hassin 1983; Murota and Shioura for L-natural concave functions).
//
// The dual g(p) = sum_i min_j (c_ij + p_j) - sum_j capacity_j p_j is concave. While more rows insist on a set of
// workers than it can hold, the set with the widest margin becomes dearer, at once by as much as g keeps growing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "solver/cheapest_workers.h"
#include "solver/group_flow.h"
#include "solver/problem.h"

namespace esd {

// The largest difference of two prices at which cost + price cannot overflow.
template <typename T>
constexpr std::int64_t kPriceRange = std::int64_t{1} << (sizeof(T) * 8 - 3);

template <typename T>
bool within_range(const std::vector<int>& workers, const T* prices) {
  T least = prices[workers.front()], most = least;
  for (int j : workers) {
    least = std::min(least, prices[j]);
    most = std::max(most, prices[j]);
  }
  return most < kPriceRange<T> && least > -kPriceRange<T>;
}

// Improves `prices` [n] until they are optimal and leaves the optimal flow in `flow`. Returns false when they are not
// after `pass_limit` passes, or leave the range. `passes` counts the passes over the matrix.
template <typename T, typename Set>
bool dual_ascent(const Problem<T>& problem, T* prices, int pass_limit, GroupFlow<T, Set>& flow, int& passes) {
  const Columns<T> columns = problem.columns();
  std::vector<T> lead(columns.stride);
  for (passes = 1; passes <= pass_limit; ++passes) {
    flow.run(columns, prices, problem.capacities, problem.workers);
    const Set violated = flow.violated();
    if (violated.empty()) return true;
    std::vector<int> inside, outside;
    int room = 0;
    for (int j : problem.active) {
      const bool in = violated.contains(j);
      (in ? inside : outside).push_back(j);
      if (in) room += problem.capacities[j];
    }
    const int insist = find_leads(columns, inside.data(), static_cast<int>(inside.size()), outside.data(),
                                  static_cast<int>(outside.size()), prices, lead.data());
    // g grows until no more than `room` rows still insist. It stays level until fewer than `room` do, but the near
    // end of that stretch needs far fewer passes (measured: 8 against 71 on products).
    const auto step = lead.begin() + room;
    std::nth_element(lead.begin(), step, lead.begin() + insist, std::greater<T>());
    for (int j : inside) prices[j] += *step;
    if (!within_range(problem.active, prices)) return false;
  }
  passes = pass_limit;
  return false;
}

}  // namespace esd
