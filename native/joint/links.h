// Link costs of the joint optimiser: integers in fixed point, so that sums are exact, in lanes for vector registers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "joint/reuse.h"

namespace esd {

// `Width` lanes, one per worker; lanes without a worker cost nothing and have no capacity.
template <unsigned Width>
struct JointLinks {
  double scale = 64;                                          // a link cost of 1 here, a power of two
  std::int32_t pull[Width] = {};                              // T_j
  std::int32_t again[ReuseStatistics::kClasses][Width] = {};  // p_c T_j: a partial gradient will be pushed
  std::int32_t nothing[Width] = {};

  JointLinks(const std::int32_t* link_costs, unsigned workers, std::uint64_t sample_size,
             const ReuseStatistics& reuse) {
    // A row of size 1 adds at most T_j + p T_j + p T_q + T_h + T_q to the cost of a sample; the solver takes costs below 2^28.
    const double highest = *std::max_element(link_costs, link_costs + workers);
    while (5 * highest * static_cast<double>(sample_size) * scale >= 0x1p28) scale /= 2;
    for (unsigned j = 0; j < workers; ++j) {
      pull[j] = again[ReuseStatistics::kCertain][j] = static_cast<std::int32_t>(std::lround(link_costs[j] * scale));
      for (std::uint32_t c = 1; c < ReuseStatistics::kClasses; ++c) {
        again[c][j] = static_cast<std::int32_t>(std::lround(reuse.probability(c) * pull[j]));
      }
    }
  }
};

}  // namespace esd
