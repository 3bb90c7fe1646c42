// Multilevel successive shortest paths: prices from nested samples of the rows make the full problem nearly done.
//
// At each level rows start at a tight worker, so that complementary slackness holds, and surplus rows then move
// along shortest paths in the graph of n workers until every worker is within capacity. Exact for any prices.
#pragma once

#include "arcs.h"
#include "common/mix64.h"
#include "tight_flow.h"

namespace esd {

// Shortest paths from the overloaded workers under reduced costs, by Dijkstra's algorithm on n nodes.
template <class T>
class PathSearch {
 public:
  explicit PathSearch(int n) : n_(n), distance_(size()), parent_(size()), settled_(size()) {}

  // Ends at the nearest worker with room; -1 where there is none.
  int run(const Arcs<T>& arcs, const T* prices, const std::vector<int>& load, const std::vector<int>& capacities) {
    for (std::size_t j = 0; j < size(); ++j) {
      distance_[j] = load[j] > capacities[j] ? 0 : Arcs<T>::kNone;
      parent_[j] = -1;
      settled_[j] = false;
    }
    for (;;) {
      int nearest = -1;
      for (int j = 0; j < n_; ++j)
        if (!settled_[at(j)] && distance_[at(j)] != Arcs<T>::kNone &&
            (nearest < 0 || distance_[at(j)] < distance_[at(nearest)]))
          nearest = j;
      if (nearest < 0 || load[at(nearest)] < capacities[at(nearest)]) return nearest;
      settled_[at(nearest)] = true;
      for (int to = 0; to < n_; ++to) relax(arcs, prices, nearest, to);
    }
  }

  std::int64_t distance(int j) const { return distance_[at(j)]; }
  int parent(int j) const { return parent_[at(j)]; }

 private:
  static std::size_t at(int j) { return static_cast<std::size_t>(j); }
  std::size_t size() const { return at(n_); }

  void relax(const Arcs<T>& arcs, const T* prices, int from, int to) {
    const std::int64_t added = arcs.cost(from, to);
    if (settled_[at(to)] || added == Arcs<T>::kNone) return;
    // A bound may lie below zero, the rows behind it never do.
    const std::int64_t reduced = std::max<std::int64_t>(added + prices[to] - prices[from], 0);
    const std::int64_t length = distance_[at(from)] + reduced;
    if (length < distance_[at(to)]) {
      distance_[at(to)] = length;
      parent_[at(to)] = from;
    }
  }

  const int n_;
  std::vector<std::int64_t> distance_;
  std::vector<int> parent_;
  std::vector<char> settled_;
};

template <class T, class Mask>
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
  static constexpr int kCoarsest = 64;  // a level with more rows gets a coarser one

  // Nested pseudo-random samples, from all rows to the coarsest.
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

  // Capacities in proportion, by largest remainder.
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
    std::stable_sort(order.begin(), order.end(), [&rest](int a, int b) {
      return rest[static_cast<std::size_t>(a)] > rest[static_cast<std::size_t>(b)];
    });
    for (int r = 0; r < left; ++r) ++scaled[static_cast<std::size_t>(order[static_cast<std::size_t>(r)])];
    return scaled;
  }

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

  // Moves the surplus along shortest paths.
  int drain(const std::vector<int>& rows, int surplus, const std::vector<int>& capacities, T* prices,
            std::vector<int>& worker_of) {
    std::vector<int>& load = flow_.load;
    Arcs<T> arcs(problem_, rows, worker_of, 16 + 4 * surplus / problem_.workers);
    int augmentations = 0;
    for (;;) {
      const int target = search_.run(arcs, prices, load, capacities);
      if (target < 0) return augmentations;
      if (make_exact(arcs, target)) continue;
      const int source = raise_prices(prices, target);
      do {
        for (int to = target; to != source; to = search_.parent(to)) arcs.move(search_.parent(to), to);
        for (int j = target; j >= 0; j = search_.parent(j)) arcs.refresh(j);
        --load[static_cast<std::size_t>(source)];
        ++load[static_cast<std::size_t>(target)];
        ++augmentations;
      } while (load[static_cast<std::size_t>(source)] > capacities[static_cast<std::size_t>(source)] &&
               load[static_cast<std::size_t>(target)] < capacities[static_cast<std::size_t>(target)] &&
               still_tight(arcs, prices, target));
    }
  }

  // True: an arc of the path was only a bound; the search must be repeated.
  bool make_exact(Arcs<T>& arcs, int target) const {
    bool changed = false;
    for (int to = target; search_.parent(to) >= 0; to = search_.parent(to)) {
      const int from = search_.parent(to);
      if (arcs.exact(from, to)) continue;
      arcs.rebuild(from);
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

  bool still_tight(const Arcs<T>& arcs, const T* prices, int target) const {
    for (int to = target; search_.parent(to) >= 0; to = search_.parent(to)) {
      const int from = search_.parent(to);
      if (!arcs.exact(from, to) || arcs.cost(from, to) + prices[to] - prices[from] != 0) return false;
    }
    return true;
  }

  const Problem<T>& problem_;
  PathSearch<T> search_;
  TightFlow<T, Mask> flow_;
  std::vector<T> sampled_;
};

}  // namespace esd
