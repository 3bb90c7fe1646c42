// One answer whatever the start and the algorithm: the least optimal prices, and one way to break ties under them.
#pragma once

#include "tight_flow.h"

namespace esd {

// exchange[h][j] = min over the rows i at worker h of c_ij - c_ih.
template <class T>
ESD_HOT void exchange_pass(const T* by_row, int rows, int n, const int* worker_of, T* exchange) {
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

// Replaces optimal prices by the canonical ones, given any optimal assignment.
//
// Prices are optimal when p_j >= p_h - exchange[h][j] for all workers h with rows. With p = 0 at the first of them,
// the least such prices are the negated shortest distances from it. They do not depend on the assignment, because
// every optimal assignment has the same optimal prices.
template <class T>
void canonical_prices(const Problem<T>& problem, const int* worker_of, T* prices) {
  const int n = problem.workers;
  std::vector<T> exchange(static_cast<std::size_t>(n * n), std::numeric_limits<T>::max());
  exchange_pass(problem.by_row, problem.rows, n, worker_of, exchange.data());

  // Dijkstra from the first worker; optimal prices make the reduced lengths non-negative.
  const int first = problem.active.front();
  std::vector<std::int64_t> distance(static_cast<std::size_t>(n), std::numeric_limits<std::int64_t>::max());
  std::vector<int> open = problem.active;
  std::vector<T> least(static_cast<std::size_t>(n));
  distance[static_cast<std::size_t>(first)] = 0;
  while (!open.empty()) {
    const auto nearest = std::min_element(open.begin(), open.end(), [&distance](int a, int b) {
      return distance[static_cast<std::size_t>(a)] < distance[static_cast<std::size_t>(b)];
    });
    const int h = *nearest;
    open.erase(nearest);
    const std::int64_t here = distance[static_cast<std::size_t>(h)];
    least[static_cast<std::size_t>(h)] = static_cast<T>(prices[h] - prices[first] - here);
    for (int j : open) {
      const std::int64_t reduced =
          static_cast<std::int64_t>(exchange[static_cast<std::size_t>(h * n + j)]) + prices[j] - prices[h];
      std::int64_t& far = distance[static_cast<std::size_t>(j)];
      far = std::min(far, here + reduced);
    }
  }
  // A worker without capacity: the least price at which no row wants it.
  for (int j = 0; j < n; ++j) {
    if (problem.capacities[j] > 0) continue;
    std::int64_t price = std::numeric_limits<std::int64_t>::min();
    for (int h : problem.active)
      price = std::max<std::int64_t>(price, static_cast<std::int64_t>(least[static_cast<std::size_t>(h)]) -
                                                exchange[static_cast<std::size_t>(h * n + j)]);
    least[static_cast<std::size_t>(j)] = static_cast<T>(price);
  }
  std::copy(least.begin(), least.end(), prices);
}

}  // namespace esd
