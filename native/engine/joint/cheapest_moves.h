// Passes over lanes of workers for the transportation problem by paths: the cheapest move of a row from a worker to each
// other one, and one step of Dijkstra's algorithm. Every pass keeps its lanes in vector registers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "common/hot.h"

namespace esd {

// A price that keeps all rows away, and what a worker's moves cost before it has a row.
constexpr std::int32_t kFar = std::int32_t{1} << 30;

// The distance of a worker that no path reaches.
constexpr std::int32_t kNever = std::numeric_limits<std::int32_t>::max();

// moves[j] becomes the least of itself and of what it adds to the cost that one of `rows` [count] moves from worker
// `from` to worker j. `costs` [rows, Width] are those of the whole problem.
template <unsigned Width>
ESD_HOT void lower_moves(const std::int32_t* costs, const int* rows, std::size_t count, unsigned from,
                         std::int32_t* moves) {
  typedef std::int32_t Lanes __attribute__((vector_size(32)));  // all fit in registers, which GCC finds for no array
  constexpr unsigned kLanesOf = sizeof(Lanes) / sizeof(std::int32_t);
  constexpr unsigned kAtOnce = Width < 64 ? Width : 64;  // workers; the lanes of more would not fit
  constexpr unsigned kVectors = kAtOnce / kLanesOf;
  for (unsigned first = 0; first < Width; first += kAtOnce) {
    Lanes least[kVectors];
    std::memcpy(least, moves + first, sizeof least);
    for (std::size_t r = 0; r < count; ++r) {
      const std::int32_t* const row = costs + static_cast<std::size_t>(rows[r]) * Width;
      const Lanes here = Lanes{} + row[from];
#pragma GCC unroll 8
      for (unsigned v = 0; v < kVectors; ++v) {
        Lanes added;
        std::memcpy(&added, row + first + v * kLanesOf, sizeof added);
        added -= here;
        least[v] = added < least[v] ? added : least[v];
      }
    }
    std::memcpy(moves + first, least, sizeof least);
  }
}

// moves[j] becomes the least of itself and others[j].
template <unsigned Width>
ESD_HOT void lower(const std::int32_t* others, std::int32_t* moves) {
  for (unsigned j = 0; j < Width; ++j) moves[j] = std::min(moves[j], others[j]);
}

// The least of row[j] + prices[j].
template <unsigned Width>
ESD_HOT std::int32_t least_sum(const std::int32_t* row, const std::int32_t* prices) {
  std::int32_t least = row[0] + prices[0];
  for (unsigned j = 1; j < Width; ++j) least = std::min(least, row[j] + prices[j]);
  return least;
}

// The least distance of a worker that is not settled; `settled` is kNever where one is, and 0 elsewhere.
template <unsigned Width>
ESD_HOT std::int32_t least_open(const std::int32_t* distances, const std::int32_t* settled) {
  std::int32_t least = std::max(distances[0], settled[0]);
  for (unsigned j = 1; j < Width; ++j) least = std::min(least, std::max(distances[j], settled[j]));
  return least;
}

// Shortens the paths to all workers by those that continue with a move from worker `from`: `base` is the length of the
// path to it, less its price.
template <unsigned Width>
ESD_HOT void relax(const std::int32_t* moves, const std::int32_t* prices, std::int32_t base, std::int32_t from,
                   std::int32_t* distances, std::int32_t* parents) {
  for (unsigned j = 0; j < Width; ++j) {
    const std::int32_t length = moves[j] + prices[j] + base;
    const bool shorter = length < distances[j];
    distances[j] = shorter ? length : distances[j];
    parents[j] = shorter ? from : parents[j];
  }
}

}  // namespace esd
