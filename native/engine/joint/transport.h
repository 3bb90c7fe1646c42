// Exact transportation problems in quick succession: solved as in solver/solve.h, without the canonical form, and with
// the proof in debug builds and under sanitizers only.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <type_traits>
#include <vector>

#include "common/workers.h"
#include "solver/dual_ascent.h"
#include "solver/group_flow.h"
#include "solver/problem.h"
#include "solver/shortest_paths.h"

namespace esd {

template <unsigned Width>
class Transport {
 public:
  // Assigns rows to workers [rows], worker j capacities[j] times, at the least sum of costs [rows, Width]. `prices`
  // [Width] are where the dual ascent starts, and become optimal duals. The result is a function of all of these.
  void solve(const std::vector<std::int32_t>& costs, const int* capacities, std::int32_t* prices,
             std::vector<int>& assignment) {
    const auto rows = static_cast<int>(costs.size() / Width);
    const Problem<std::int32_t> problem(costs.data(), rows, Width, capacities);
    assignment.resize(static_cast<std::size_t>(rows));
    const std::int32_t first = prices[problem.active.front()];
    for (unsigned j = 0; j < Width; ++j) prices[j] -= first;
    int passes;
    if (dual_ascent(problem, prices, kPassLimit, flow_, passes)) {
      flow_.assign(assignment.data());
    } else {
      for (unsigned j = 0; j < Width; ++j) prices[j] = 0;
      ShortestPaths<std::int32_t, Set>(problem).run(prices, assignment);
    }
#if defined(ESD_SANITIZE) || !defined(NDEBUG)
    check(costs, capacities, prices, assignment);
#endif
  }

 private:
  // Ends the program unless capacities are met and the cost equals the dual bound.
  static void check(const std::vector<std::int32_t>& costs, const int* capacities, const std::int32_t* prices,
                    const std::vector<int>& assignment) {
    int load[Width] = {};
    std::int64_t primal = 0, dual = 0;
    for (std::size_t i = 0; i < assignment.size(); ++i) {
      const std::int32_t* row = &costs[i * Width];
      ++load[assignment[i]];
      primal += row[assignment[i]];
      std::int64_t least = INT64_MAX;
      for (unsigned j = 0; j < Width; ++j) {
        if (capacities[j] > 0) least = std::min(least, std::int64_t{row[j]} + prices[j]);
      }
      dual += least;
    }
    for (unsigned j = 0; j < Width; ++j) dual -= std::int64_t{capacities[j]} * prices[j];
    if (primal == dual && std::equal(load, load + Width, capacities)) return;
    std::fprintf(stderr, "a transportation problem was not solved: cost %lld, dual bound %lld\n",
                 static_cast<long long>(primal), static_cast<long long>(dual));
    std::abort();
  }

  using Set = std::conditional_t<(Width <= 32), NarrowWorkerSet, WorkerSet>;
  static constexpr int kPassLimit = 64;

  GroupFlow<std::int32_t, Set> flow_;
};

}  // namespace esd
