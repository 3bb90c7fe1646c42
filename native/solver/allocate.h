// Herald's allocation (Alg. 1, lines 8-12): samples in turn, each to the worker with room that scores highest.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/mix64.h"

namespace esd {

// scores [samples, workers]; room [workers], sum at least `samples`; worker_of [samples]. Ties are broken by uniform
// draws, entry after entry of splitmix64's sequence from `start`.
inline void allocate(const std::int32_t* scores, std::size_t samples, std::size_t workers, std::uint64_t start,
                     std::vector<int> room, std::int32_t* worker_of) {
  constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15ULL;
  if (samples == 0) return;
  const std::int32_t highest = *std::max_element(scores, scores + samples * workers);
  std::vector<std::size_t> open;
  for (std::size_t j = 0; j < workers; ++j) {
    if (room[j] > 0) open.push_back(j);
  }
  for (std::size_t i = 0; i < samples; ++i, scores += workers) {
    std::size_t best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t a = 0; a < open.size(); ++a) {
      // The integer part ranks by score, the fraction in [0, 1) breaks ties.
      const std::uint64_t draw = mix64(start + (i * workers + open[a] + 1) * kStep) >> 11;
      const double cost = static_cast<double>(highest - scores[open[a]]) + static_cast<double>(draw) * 0x1p-53;
      best = cost < least ? a : best;
      least = cost < least ? cost : least;
    }
    worker_of[i] = static_cast<std::int32_t>(open[best]);
    if (--room[open[best]] == 0) open.erase(open.begin() + static_cast<std::ptrdiff_t>(best));
  }
}

}  // namespace esd
