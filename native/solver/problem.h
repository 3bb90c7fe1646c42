// The assignment problem in integers: costs in both layouts, workers with capacity.
#pragma once

#include <vector>

#include "hd.h"

namespace esd {

constexpr int kLanes = 64;  // rows of one vectorised block; columns are padded to a multiple

// Costs of some rows, one contiguous column per worker: what a pass over the matrix reads.
template <class T>
struct Columns {
  const T* data;          // [n][stride], padded with zeros
  std::ptrdiff_t stride;  // >= rows, a multiple of kLanes
  int rows;
  const int* workers;  // the columns that count: workers with capacity, ascending
  int worker_count;
};

template <class T>
struct Problem {
  int rows;               // k
  int workers;            // n
  const T* by_row;        // [k][n]
  const int* capacities;  // [n], sum k
  std::vector<T> by_worker;
  std::vector<int> active;  // workers with capacity, ascending; the others never hold a row

  Problem(const T* costs, int k, int n, const int* capacity)
      : rows(k), workers(n), by_row(costs), capacities(capacity) {
    for (int j = 0; j < n; ++j)
      if (capacity[j] > 0) active.push_back(j);
    transpose(costs, nullptr, k, n, by_worker);
  }

  Columns<T> columns() const {
    return {by_worker.data(), padded(rows), rows, active.data(), static_cast<int>(active.size())};
  }

  static std::ptrdiff_t padded(int rows) { return (static_cast<std::ptrdiff_t>(rows) + kLanes - 1) / kLanes * kLanes; }

  // out[j][r] = costs[chosen[r]][j]; all rows where `chosen` is null.
  static void transpose(const T* costs, const int* chosen, int rows, int n, std::vector<T>& out) {
    const std::ptrdiff_t stride = padded(rows);
    out.assign(static_cast<std::size_t>(stride * n), T{0});
    for (int first = 0; first < rows; first += kLanes) {
      const int last = first + kLanes < rows ? first + kLanes : rows;
      for (int j = 0; j < n; ++j)
        for (int r = first; r < last; ++r) {
          const std::ptrdiff_t row = chosen ? chosen[r] : r;
          out[static_cast<std::size_t>(j * stride + r)] = costs[row * n + j];
        }
    }
  }
};

}  // namespace esd
