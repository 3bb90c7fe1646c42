// The whole solve of an integer problem: an algorithm for optimal prices, the canonical assignment, and its proof.
//
// The answer depends only on the costs and capacities, not on the algorithm or its start: prices are replaced by the
// least optimal ones, and ties under them are broken by one rule, a flow over sorted groups.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/workers.h"
#include "solver/canonical_prices.h"
#include "solver/dual_ascent.h"
#include "solver/group_flow.h"
#include "solver/problem.h"
#include "solver/shortest_paths.h"

namespace esd {

enum class Algorithm { kDual, kPaths };

struct IntegerSolution {
  std::vector<int> assignment;             // [k], the worker of each row
  std::vector<std::int64_t> prices;        // [n], canonical
  double gap = 0;                          // cost minus dual bound, in units of the integer costs; 0 proves the optimum
  Algorithm algorithm = Algorithm::kDual;  // the algorithm that reached the optimum
  int passes = 0;                          // passes of the dual ascent
  int augmentations = 0;                   // paths of successive shortest paths
};

// Solves with worker sets of the given type. `start` [n] lies within +-kPriceRange / 2, or is null for zeros.
template <typename T, typename Set>
IntegerSolution solve_with_sets(const Problem<T>& problem, const std::int64_t* start, Algorithm algorithm,
                                int pass_limit) {
  IntegerSolution solution;
  solution.algorithm = algorithm;
  std::vector<T> prices(problem.workers);
  if (start) std::copy_n(start, problem.workers, prices.begin());
  std::vector<int>& assignment = solution.assignment;
  assignment.resize(problem.rows);

  GroupFlow<T, Set> flow;
  if (algorithm == Algorithm::kDual) {
    if (dual_ascent(problem, prices.data(), pass_limit, flow, solution.passes))
      flow.assign(assignment.data());
    else
      solution.algorithm = Algorithm::kPaths;
  }
  if (solution.algorithm == Algorithm::kPaths)
    solution.augmentations = ShortestPaths<T, Set>(problem).run(prices.data(), assignment);

  make_canonical(problem, assignment.data(), prices.data());
  flow.run(problem.columns(), prices.data(), problem.capacities, problem.workers, true);
  flow.assign(assignment.data());
  for (int i = 0; i < problem.rows; ++i) {
    const int j = assignment[i];
    const T cost = problem.by_row[static_cast<std::ptrdiff_t>(i) * problem.workers + j];
    solution.gap += static_cast<double>(cost + prices[j] - flow.low[i]);
  }
  for (int j = 0; j < problem.workers; ++j)  // not a solution if a worker is not at its capacity
    if (flow.load[j] != problem.capacities[j]) solution.gap = std::numeric_limits<double>::infinity();
  solution.prices.assign(prices.begin(), prices.end());
  return solution;
}

template <typename T>
IntegerSolution solve(const Problem<T>& problem, const std::int64_t* start, Algorithm algorithm, int pass_limit) {
  if (sizeof(T) == 4 && problem.workers <= 32)
    return solve_with_sets<T, NarrowWorkerSet>(problem, start, algorithm, pass_limit);
  if (problem.workers <= 64)
    return solve_with_sets<T, WorkerSetOf<std::uint64_t>>(problem, start, algorithm, pass_limit);
  return solve_with_sets<T, WorkerSet>(problem, start, algorithm, pass_limit);
}

}  // namespace esd
