// Passes over the cost matrix under prices: the cheapest workers of each row, and their lead over the others.
//
// A worker is called tight for a row when no worker has a lower cost + price. A pass processes kLanes rows at a time
// through all columns, which keeps their running minima in vector registers.
#pragma once

#include <cstddef>

#include "common/hot.h"
#include "solver/problem.h"

namespace esd {

// Writes the least cost + price over the given workers to `low`, for the kLanes rows that start at `costs`.
template <typename T>
ESD_HOT_INLINE void least_of_block(const T* costs, std::ptrdiff_t stride, const int* workers, int count,
                                   const T* prices, T* low) {
  const T* column = costs + workers[0] * stride;
  T price = prices[workers[0]];
  for (int b = 0; b < kLanes; ++b) low[b] = column[b] + price;
  for (int a = 1; a < count; ++a) {
    column = costs + workers[a] * stride;
    price = prices[workers[a]];
    for (int b = 0; b < kLanes; ++b) {
      const T value = column[b] + price;
      low[b] = value < low[b] ? value : low[b];
    }
  }
}

// Finds the least cost + price of each row, `low` [stride], and the workers that reach it, `tight` [stride].
template <typename T, typename Set>
ESD_HOT void find_tight_workers(const Columns<T>& c, const T* prices, T* low, Set* tight) {
  for (std::ptrdiff_t i = 0; i < c.rows; i += kLanes) {
    least_of_block(c.data + i, c.stride, c.workers, c.worker_count, prices, low + i);
    for (int b = 0; b < kLanes; ++b) tight[i + b] = Set{};
    for (int a = 0; a < c.worker_count; ++a) {
      const T* column = c.data + i + c.workers[a] * c.stride;
      const T price = prices[c.workers[a]];
      const Set worker = Set::only(c.workers[a]);
      for (int b = 0; b < kLanes; ++b) tight[i + b] |= worker.when(column[b] + price == low[i + b]);
    }
  }
}

// Finds how much dearer the workers of `inside` must become before a row leaves them. Writes the positive leads in row
// order to `lead` [stride] and returns how many there are.
template <typename T>
ESD_HOT int find_leads(const Columns<T>& c, const int* inside, int inside_count, const int* outside, int outside_count,
                       const T* prices, T* lead) {
  int found = 0;
  for (std::ptrdiff_t i = 0; i < c.rows; i += kLanes) {
    T in[kLanes], out[kLanes];
    least_of_block(c.data + i, c.stride, inside, inside_count, prices, in);
    least_of_block(c.data + i, c.stride, outside, outside_count, prices, out);
    const int rows = c.rows - i < kLanes ? static_cast<int>(c.rows - i) : kLanes;
    for (int b = 0; b < rows; ++b) {
      lead[found] = out[b] - in[b];
      found += out[b] > in[b];
    }
  }
  return found;
}

}  // namespace esd
