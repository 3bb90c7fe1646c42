// Exact transportation problems in quick succession: as solver/solve.h, without the canonical form and the proof.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "solver/dual_ascent.h"
#include "solver/shortest_paths.h"

namespace esd {

template <unsigned Width>
class Transport {
 public:
  // Assigns rows to workers [rows], worker j capacities[j] times, at the least sum of costs [rows, Width].
  // `prices` [Width]: where the dual ascent starts, then optimal duals. The result is a function of all of these.
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
      ShortestPaths<std::int32_t, Mask>(problem).run(prices, assignment);
    }
  }

 private:
  using Mask = std::conditional_t<(Width <= 32), std::uint32_t, std::uint64_t>;
  static constexpr int kPassLimit = 64;

  TightFlow<std::int32_t, Mask> flow_;
};

}  // namespace esd
