// The cheapest row to move from each worker to each other worker, kept up to date while rows move.
//
// These are the arcs of the graph of workers in which surplus rows follow shortest paths. A heap per pair of workers
// holds the rows whose move adds the least cost; a bound stands for the other rows. If the heap of an arc has run
// empty, only the bound is known, until `rebuild` makes the arc exact again.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/hot.h"
#include "solver/problem.h"

namespace esd {

// Whether moving a row with cost `here` to any of n workers adds less than the arc's bound.
template <typename T>
ESD_HOT bool any_below(const T* costs, T here, const T* bounds, int n) {
  bool any = false;
  for (int j = 0; j < n; ++j) any |= costs[j] - here < bounds[j];
  return any;
}

template <typename T>
class RowMoves {
 public:
  static constexpr std::int64_t kNoMove = std::numeric_limits<std::int64_t>::max();

  // `rows` lists the problem's rows in play and `worker_of` [rows.size()] holds their workers; the caller owns both,
  // and they must outlive this object. A heap is cut to its cheapest `heap_rows` when it has twice as many.
  RowMoves(const Problem<T>& problem, const std::vector<int>& rows, std::vector<int>& worker_of, int heap_rows)
      : problem_(problem),
        n_(problem.workers),
        rows_(rows),
        worker_of_(worker_of),
        heap_rows_(heap_rows),
        heaps_(n_ * n_),
        bounds_(heaps_.size()),
        costs_(heaps_.size()) {
    for (int j = 0; j < n_; ++j) reset(j);
    for (std::size_t r = 0; r < rows_.size(); ++r) offer(static_cast<int>(r), true);
    for (int j = 0; j < n_; ++j) finish(j);
  }

  // The least cost that moving one row from `from` to `to` adds; kNoMove if no row can move.
  std::int64_t cost(int from, int to) const { return costs_[pair(from, to)]; }

  // Whether `cost` belongs to a row in the heap and is not merely a bound.
  bool exact(int from, int to) const { return !heaps_[pair(from, to)].empty(); }

  // Refills worker `from`'s heaps, which makes its arcs exact.
  void rebuild(int from) {
    reset(from);
    for (std::size_t r = 0; r < rows_.size(); ++r)
      if (worker_of_[r] == from) offer(static_cast<int>(r), true);
    finish(from);
  }

  // Moves the cheapest row of an exact arc. The caller refreshes `from` and `to` before it asks for costs again.
  void move(int from, int to) {
    auto& heap = heaps_[pair(from, to)];
    const int row = heap.front().row;
    worker_of_[row] = to;
    offer(row, false);
  }

  // Drops the rows that have left worker `from` from the tops of its heaps and updates the costs of its arcs.
  void refresh(int from) {
    for (int to = 0; to < n_; ++to) {
      auto& heap = heaps_[pair(from, to)];
      while (!heap.empty() && worker_of_[heap.front().row] != from) {
        std::pop_heap(heap.begin(), heap.end(), dearer);
        heap.pop_back();
      }
      const T bound = bounds_[pair(from, to)];
      costs_[pair(from, to)] = !heap.empty()    ? heap.front().cost
                               : is_open(bound) ? static_cast<std::int64_t>(bound)
                                                : kNoMove;
    }
  }

 private:
  struct Entry {
    T cost;
    int row;
  };
  static constexpr T kEverything = std::numeric_limits<T>::max();  // the bound of a heap that holds all rows
  static constexpr T kNothing = std::numeric_limits<T>::min();     // the bound of an arc that takes no rows

  static bool dearer(const Entry& a, const Entry& b) { return a.cost != b.cost ? a.cost > b.cost : a.row > b.row; }
  static bool cheaper(const Entry& a, const Entry& b) { return dearer(b, a); }
  static bool is_open(T bound) { return bound != kEverything && bound != kNothing; }

  int pair(int from, int to) const { return from * n_ + to; }

  // Empties worker `from`'s heaps. Workers without capacity take no rows.
  void reset(int from) {
    for (int to = 0; to < n_; ++to) {
      heaps_[pair(from, to)].clear();
      bounds_[pair(from, to)] = to == from || problem_.capacities[to] == 0 ? kNothing : kEverything;
    }
  }

  // Enters a row into each of its worker's heaps whose bound is above the row.
  void offer(int row, bool building) {
    const int from = worker_of_[row];
    const T* costs = problem_.by_row + static_cast<std::ptrdiff_t>(rows_[row]) * n_;
    const T here = costs[from];
    T* bounds = &bounds_[pair(from, 0)];
    if (!any_below(costs, here, bounds, n_)) return;
    for (int to = 0; to < n_; ++to) {
      const T added = costs[to] - here;
      if (added >= bounds[to]) continue;
      auto& heap = heaps_[pair(from, to)];
      heap.push_back({added, row});
      if (!building)
        std::push_heap(heap.begin(), heap.end(), dearer);
      else if (heap.size() == 2 * heap_rows_)
        shorten(heap, bounds[to]);
    }
  }

  // Keeps the cheapest half of a heap; every row that is dropped, now or later, costs at least the new bound.
  void shorten(std::vector<Entry>& heap, T& bound) {
    const auto last = heap.begin() + static_cast<std::ptrdiff_t>(heap_rows_) - 1;
    std::nth_element(heap.begin(), last, heap.end(), cheaper);
    bound = last->cost;
    heap.resize(heap_rows_);
  }

  // Turns worker `from`'s entries into heaps once they are complete.
  void finish(int from) {
    for (int to = 0; to < n_; ++to)
      std::make_heap(heaps_[pair(from, to)].begin(), heaps_[pair(from, to)].end(), dearer);
    refresh(from);
  }

  const Problem<T>& problem_;
  const int n_;
  const std::vector<int>& rows_;
  std::vector<int>& worker_of_;
  const std::size_t heap_rows_;
  std::vector<std::vector<Entry>> heaps_;  // [from][to], min-heaps
  std::vector<T> bounds_;                  // [from][to]
  std::vector<std::int64_t> costs_;        // [from][to]
};

}  // namespace esd
