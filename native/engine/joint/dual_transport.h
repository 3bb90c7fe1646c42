// The transportation problem by dual ascent, for few workers: solved as in solver/solve.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/workers.h"
#include "solver/dual_ascent.h"
#include "solver/group_flow.h"
#include "solver/problem.h"
#include "solver/shortest_paths.h"

namespace esd {

template <unsigned Width>
class DualTransport {
  static_assert(Width <= 32, "a set of workers has 32 bits here");

 public:
  // As `Transport::solve`; `assignment` has as many elements as there are rows.
  void solve(const std::vector<std::int32_t>& costs, const int* capacities, std::int32_t* prices,
             std::vector<int>& assignment) {
    const Problem<std::int32_t> problem(costs.data(), static_cast<int>(assignment.size()), Width, capacities);
    const std::int32_t first = prices[problem.active.front()];
    for (unsigned j = 0; j < Width; ++j) prices[j] -= first;
    int passes;
    if (dual_ascent(problem, prices, kPassLimit, flow_, passes)) {
      flow_.assign(assignment.data());
    } else {
      for (unsigned j = 0; j < Width; ++j) prices[j] = 0;
      ShortestPaths<std::int32_t, NarrowWorkerSet>(problem).run(prices, assignment);
    }
  }

 private:
  static constexpr int kPassLimit = 64;

  GroupFlow<std::int32_t, NarrowWorkerSet> flow_;
};

}  // namespace esd
