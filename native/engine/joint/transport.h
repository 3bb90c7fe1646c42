// Exact transportation problems in quick succession, without the canonical form of solver/solve.h, and with the proof in
// debug builds and under sanitizers only.
//
// The passes of the dual ascent are few for up to 8 workers and grow with the workers; the paths of surplus rows do not.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <type_traits>
#include <vector>

#include "engine/joint/dual_transport.h"
#include "engine/joint/path_transport.h"

namespace esd {

template <unsigned Width>
class Transport {
 public:
  // Assigns rows to workers [rows], worker j capacities[j] times, at the least sum of costs [rows, Width]. `prices`
  // [Width] are where the solver starts, and become optimal duals. The result is a function of all of these.
  void solve(const std::vector<std::int32_t>& costs, const int* capacities, std::int32_t* prices,
             std::vector<int>& assignment) {
    assignment.resize(costs.size() / Width);
    solver_.solve(costs, capacities, prices, assignment);
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

  std::conditional_t<(Width <= 8), DualTransport<Width>, PathTransport<Width>> solver_;
};

}  // namespace esd
