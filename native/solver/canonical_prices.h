// The least optimal prices, which do not depend on the algorithm or its start.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/hot.h"
#include "solver/problem.h"

namespace esd {

// Lowers exchange[h][j] to the least c_ij - c_ih over the rows i at worker h.
template <typename T>
ESD_HOT void find_exchanges(const T* by_row, int rows, int n, const int* worker_of, T* exchange) {
  for (int i = 0; i < rows; ++i) {
    const T* costs = by_row + static_cast<std::ptrdiff_t>(i) * n;
    const T here = costs[worker_of[i]];
    T* least = exchange + worker_of[i] * n;
    for (int j = 0; j < n; ++j) {
      const T added = costs[j] - here;
      least[j] = added < least[j] ? added : least[j];
    }
  }
}

// Replaces optimal `prices` [n] by the canonical ones, given any optimal assignment, `worker_of` [k].
//
// Prices are optimal when p_j >= p_h - exchange[h][j] for all workers h with rows. With p = 0 at the first of them,
// the least such prices are the negated shortest distances from it. They do not depend on the assignment, because
// every optimal assignment has the same optimal prices.
template <typename T>
void make_canonical(const Problem<T>& problem, const int* worker_of, T* prices) {
  const int n = problem.workers;
  std::vector<T> exchange(n * n, std::numeric_limits<T>::max());
  find_exchanges(problem.by_row, problem.rows, n, worker_of, exchange.data());

  // Dijkstra from the first worker; optimal prices make the reduced lengths non-negative.
  const int first = problem.active.front();
  std::vector<std::int64_t> distance(n, std::numeric_limits<std::int64_t>::max());
  std::vector<int> open = problem.active;
  std::vector<T> least(n);
  distance[first] = 0;
  while (!open.empty()) {
    const auto nearest =
        std::min_element(open.begin(), open.end(), [&](int a, int b) { return distance[a] < distance[b]; });
    const int h = *nearest;
    open.erase(nearest);
    least[h] = static_cast<T>(prices[h] - prices[first] - distance[h]);
    for (int j : open) {
      const std::int64_t reduced = std::int64_t{exchange[h * n + j]} + prices[j] - prices[h];
      distance[j] = std::min(distance[j], distance[h] + reduced);
    }
  }
  // The price of a worker without capacity is the least one at which no row wants it.
  for (int j = 0; j < n; ++j) {
    if (problem.capacities[j] > 0) continue;
    std::int64_t price = std::numeric_limits<std::int64_t>::min();
    for (int h : problem.active) price = std::max(price, std::int64_t{least[h]} - exchange[h * n + j]);
    least[j] = static_cast<T>(price);
  }
  std::copy(least.begin(), least.end(), prices);
}

}  // namespace esd
