// The whole solve of an integer problem: an algorithm for optimal prices, the canonical assignment, its proof.
#pragma once

#include "canonical.h"
#include "dual_ascent.h"
#include "shortest_paths.h"

namespace esd {

enum class Algorithm { kDual, kPaths };

struct Solved {
  std::vector<int> assignment;       // [k]
  std::vector<std::int64_t> prices;  // [n], canonical
  double gap = 0;                    // primal - dual, in units of the integer costs
  Algorithm algorithm = Algorithm::kDual;
  int passes = 0;
  int augmentations = 0;
};

// `start` [n] within +-kPriceRange / 2, or null.
template <class T, class Mask>
Solved solve_with_masks(const Problem<T>& problem, const std::int64_t* start, Algorithm algorithm, int pass_limit) {
  Solved solved;
  solved.algorithm = algorithm;
  const auto n = static_cast<std::size_t>(problem.workers);
  std::vector<T> prices(n);
  if (start) std::copy(start, start + n, prices.begin());
  std::vector<int>& assignment = solved.assignment;
  assignment.resize(static_cast<std::size_t>(problem.rows));

  TightFlow<T, Mask> flow;
  if (algorithm == Algorithm::kDual) {
    if (dual_ascent(problem, prices.data(), pass_limit, flow, solved.passes))
      flow.assign(assignment.data());
    else
      solved.algorithm = Algorithm::kPaths;
  }
  if (solved.algorithm == Algorithm::kPaths)
    solved.augmentations = ShortestPaths<T, Mask>(problem).run(prices.data(), assignment);

  canonical_prices(problem, assignment.data(), prices.data());
  flow.run(problem.columns(), prices.data(), problem.capacities, problem.workers, true);
  flow.assign(assignment.data());
  for (int i = 0; i < problem.rows; ++i) {
    const auto r = static_cast<std::size_t>(i);
    const int j = assignment[r];
    const T cost = problem.by_row[static_cast<std::ptrdiff_t>(i) * problem.workers + j];
    solved.gap += static_cast<double>(cost + prices[static_cast<std::size_t>(j)] - flow.low[r]);
  }
  for (int j = 0; j < problem.workers; ++j)  // a worker above its capacity is no solution
    if (flow.load[static_cast<std::size_t>(j)] != problem.capacities[j])
      solved.gap = std::numeric_limits<double>::infinity();
  solved.prices.assign(prices.begin(), prices.end());
  return solved;
}

template <class T>
Solved solve(const Problem<T>& problem, const std::int64_t* start, Algorithm algorithm, int pass_limit) {
  if (sizeof(T) == 4 && problem.workers <= 32)
    return solve_with_masks<T, std::uint32_t>(problem, start, algorithm, pass_limit);
  return solve_with_masks<T, std::uint64_t>(problem, start, algorithm, pass_limit);
}

}  // namespace esd
