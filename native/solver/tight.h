// Passes over the cost matrix: which workers are cheapest for a row under prices, and by how much.
#pragma once

#include "block.h"
#include "common/hot.h"
#include "problem.h"

namespace esd {

// low and tight are [stride].
template <class T, class Mask>
ESD_HOT void tight_pass(const Columns<T>& c, const T* prices, T* low, Mask* tight) {
  for (std::ptrdiff_t i = 0; i < c.rows; i += kLanes)
    tight_block<kLanes>(c.data + i, c.stride, c.workers, c.worker_count, prices, low + i, tight + i);
}

// How much dearer the workers of `inside` must become before a row leaves them: the positive ones, in row order,
// to lead [stride]. Returns how many.
template <class T>
ESD_HOT int lead_pass(const Columns<T>& c, const int* inside, int inside_count, const int* outside, int outside_count,
                      const T* prices, T* lead) {
  int found = 0;
  for (std::ptrdiff_t i = 0; i < c.rows; i += kLanes) {
    T in[kLanes], out[kLanes];
    low_block<kLanes>(c.data + i, c.stride, inside, inside_count, prices, in);
    low_block<kLanes>(c.data + i, c.stride, outside, outside_count, prices, out);
    const int rows = c.rows - i < kLanes ? static_cast<int>(c.rows - i) : kLanes;
    for (int b = 0; b < rows; ++b) {
      lead[found] = out[b] - in[b];
      found += out[b] > in[b];
    }
  }
  return found;
}

}  // namespace esd
