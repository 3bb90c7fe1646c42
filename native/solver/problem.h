// The assignment problem in integers: k rows (samples) with a cost at each of n workers, and the workers' capacities.
//
// The costs are kept in both layouts: passes over the whole matrix read one contiguous column per worker; code that
// reads single rows uses the caller's matrix.
#pragma once

#include <cstddef>
#include <vector>

namespace esd {

constexpr int kLanes = 64;  // Passes take this many rows at a time; columns are padded to a multiple.

// The costs of some rows as columns, one per worker.
template <typename T>
struct Columns {
  const T* data;          // [n][stride], padded with zeros
  std::ptrdiff_t stride;  // at least `rows`, a multiple of kLanes
  int rows;
  const int* workers;  // [worker_count], the columns in use: workers with capacity, ascending
  int worker_count;
};

template <typename T>
struct Problem {
  int rows;                  // k
  int workers;               // n
  const T* by_row;           // [k][n], the caller's
  const int* capacities;     // [n], sum k, the caller's
  std::vector<T> by_worker;  // [n][padded(k)]
  std::vector<int> active;   // workers with capacity, ascending; the others never hold a row

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

  // Writes out[j][r] = costs[selected[r]][j] for `rows` rows; uses the first rows if `selected` is null.
  static void transpose(const T* costs, const int* selected, int rows, int n, std::vector<T>& out) {
    const std::ptrdiff_t stride = padded(rows);
    out.assign(stride * n, T{0});
    for (int first = 0; first < rows; first += kLanes) {
      const int last = first + kLanes < rows ? first + kLanes : rows;
      for (int j = 0; j < n; ++j)
        for (int r = first; r < last; ++r) {
          const std::ptrdiff_t row = selected ? selected[r] : r;
          out[j * stride + r] = costs[row * n + j];
        }
    }
  }
};

}  // namespace esd
