// Multilevel successive shortest paths: prices from nested samples of the rows leave little work for the full problem.
//
// At each level rows start at a tight worker, so that complementary slackness holds, and surplus rows then move along
// shortest paths in the graph of n workers until every worker is within capacity. The result is exact for any prices of
// the coarser levels.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "common/mix64.h"
#include "solver/group_flow.h"
#include "solver/problem.h"
#include "solver/row_moves.h"

namespace esd {

// Shortest paths from the overloaded workers under reduced costs, by Dijkstra's algorithm on n nodes.
template <typename T>
class PathSearch {
 public:
  explicit PathSearch(int n) : n_(n), distance_(n), parent_(n), settled_(n) {}

  // Returns the nearest worker with room, where the search ends; -1 when none can be reached.
  int run(const RowMoves<T>& moves, const T* prices, const std::vector<int>& load, const std::vector<int>& capacities) {
    for (int j = 0; j < n_; ++j) {
      distance_[j] = load[j] > capacities[j] ? 0 : kUnreached;
      parent_[j] = -1;
      settled_[j] = false;
    }
    for (;;) {
      int nearest = -1;
      for (int j = 0; j < n_; ++j)
        if (!settled_[j] && distance_[j] != kUnreached && (nearest < 0 || distance_[j] < distance_[nearest]))
          nearest = j;
      if (nearest < 0 || load[nearest] < capacities[nearest]) return nearest;
      settled_[nearest] = true;
      for (int to = 0; to < n_; ++to) relax(moves, prices, nearest, to);
    }
  }

  // Results of the last search: the length of the path to worker j, and the worker before j, -1 where a path starts.
  std::int64_t distance(int j) const { return distance_[j]; }
  int parent(int j) const { return parent_[j]; }

 private:
  static constexpr std::int64_t kUnreached = std::numeric_limits<std::int64_t>::max();

  void relax(const RowMoves<T>& moves, const T* prices, int from, int to) {
    const std::int64_t added = moves.cost(from, to);
    if (settled_[to] || added == RowMoves<T>::kNoMove) return;
    // A bound may make the reduced cost negative; the rows that it stands for never do.
    const std::int64_t reduced = std::max<std::int64_t>(added + prices[to] - prices[from], 0);
    const std::int64_t length = distance_[from] + reduced;
    if (length < distance_[to]) {
      distance_[to] = length;
      parent_[to] = from;
    }
  }

  const int n_;
  std::vector<std::int64_t> distance_;
  std::vector<int> parent_;
  std::vector<char> settled_;
};

template <typename T, typename Set>
class ShortestPaths {
 public:
  explicit ShortestPaths(const Problem<T>& problem) : problem_(problem), search_(problem.workers) {}

  // Overwrites `prices` [n] by optimal ones and `worker_of` [k] by an optimal assignment. Returns the number of
  // paths along which rows moved.
  int run(T* prices, std::vector<int>& worker_of) {
    std::fill(prices, prices + problem_.workers, T{0});
    std::vector<std::vector<int>> levels = samples();
    int augmentations = 0;
    for (auto level = levels.rbegin(); level != levels.rend(); ++level)
      augmentations += solve(*level, prices, worker_of);
    return augmentations;
  }

 private:
  static constexpr int kRatio = 8;      // rows of a level per row of the next coarser one
  static constexpr int kCoarsest = 64;  // a level with more rows gets a coarser level

  // Draws nested pseudo-random samples, from all rows to the coarsest.
  std::vector<std::vector<int>> samples() const {
    std::vector<std::vector<int>> levels(1);
    for (int i = 0; i < problem_.rows; ++i) levels[0].push_back(i);
    std::uint64_t kept = 1;
    while (levels.back().size() > kCoarsest) {
      kept *= kRatio;
      std::vector<int> sample;
      for (int i : levels.back())
        if (mix64(static_cast<std::uint64_t>(i)) % kept == 0) sample.push_back(i);
      levels.push_back(std::move(sample));
    }
    return levels;
  }

  // Shares `rows` out in proportion to the capacities, by largest remainder.
  std::vector<int> scaled_capacities(int rows) const {
    std::vector<int> scaled, order;
    std::vector<std::int64_t> rest;
    int left = rows;
    for (int j = 0; j < problem_.workers; ++j) {
      const std::int64_t product = static_cast<std::int64_t>(problem_.capacities[j]) * rows;
      scaled.push_back(static_cast<int>(product / problem_.rows));
      rest.push_back(product % problem_.rows);
      order.push_back(j);
      left -= scaled.back();
    }
    std::stable_sort(order.begin(), order.end(), [&rest](int a, int b) { return rest[a] > rest[b]; });
    for (int r = 0; r < left; ++r) ++scaled[order[r]];
    return scaled;
  }

  // Solves one level from the prices of the coarser one. Returns the number of paths.
  int solve(const std::vector<int>& rows, T* prices, std::vector<int>& worker_of) {
    const int count = static_cast<int>(rows.size());
    const bool all = count == problem_.rows;
    Columns<T> columns = problem_.columns();
    if (!all) {
      Problem<T>::transpose(problem_.by_row, rows.data(), count, problem_.workers, sampled_);
      columns = {sampled_.data(), Problem<T>::padded(count), count, columns.workers, columns.worker_count};
    }
    const std::vector<int> capacities = scaled_capacities(count);
    flow_.run(columns, prices, capacities.data(), problem_.workers);
    worker_of.resize(rows.size());
    flow_.assign(worker_of.data());
    int surplus = 0;
    for (std::size_t j = 0; j < capacities.size(); ++j) surplus += std::max(flow_.load[j] - capacities[j], 0);
    return surplus == 0 ? 0 : drain(rows, surplus, capacities, prices, worker_of);
  }

  // Moves the surplus along shortest paths until there is none. Returns the number of paths.
  int drain(const std::vector<int>& rows, int surplus, const std::vector<int>& capacities, T* prices,
            std::vector<int>& worker_of) {
    std::vector<int>& load = flow_.load;
    RowMoves<T> moves(problem_, rows, worker_of, 16 + 4 * surplus / problem_.workers);
    int augmentations = 0;
    for (;;) {
      const int target = search_.run(moves, prices, load, capacities);
      if (target < 0) return augmentations;
      if (make_exact(moves, target)) continue;
      const int source = raise_prices(prices, target);
      do {
        for (int to = target; to != source; to = search_.parent(to)) moves.move(search_.parent(to), to);
        for (int j = target; j >= 0; j = search_.parent(j)) moves.refresh(j);
        --load[source];
        ++load[target];
        ++augmentations;
      } while (load[source] > capacities[source] && load[target] < capacities[target] &&
               still_tight(moves, prices, target));
    }
  }

  // Makes the arcs of the path exact. Returns true if one was only a bound, so that the search must be repeated.
  bool make_exact(RowMoves<T>& moves, int target) const {
    bool changed = false;
    for (int to = target; search_.parent(to) >= 0; to = search_.parent(to)) {
      const int from = search_.parent(to);
      if (moves.exact(from, to)) continue;
      moves.rebuild(from);
      changed = true;
    }
    return changed;
  }

  // Makes the path to `target` tight and keeps every reduced cost non-negative. Returns where the path starts.
  int raise_prices(T* prices, int target) const {
    const std::int64_t length = search_.distance(target);
    for (int j = 0; j < problem_.workers; ++j)
      if (search_.distance(j) < length) prices[j] += static_cast<T>(length - search_.distance(j));
    int source = target;
    while (search_.parent(source) >= 0) source = search_.parent(source);
    return source;
  }

  // Whether the path still adds nothing to the reduced cost, so that one more row can take it.
  bool still_tight(const RowMoves<T>& moves, const T* prices, int target) const {
    for (int to = target; search_.parent(to) >= 0; to = search_.parent(to)) {
      const int from = search_.parent(to);
      if (!moves.exact(from, to) || moves.cost(from, to) + prices[to] - prices[from] != 0) return false;
    }
    return true;
  }

  const Problem<T>& problem_;
  PathSearch<T> search_;
  GroupFlow<T, Set> flow_;
  std::vector<T> sampled_;  // the columns of a level's rows
};

}  // namespace esd
