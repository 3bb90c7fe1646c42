// The cheapest workers of B rows under prices, from column-major costs: B = 1 is a CUDA thread, B = kLanes fills the
// CPU's vector registers.
#pragma once

#include "hd.h"

namespace esd {

// low[b] = min over workers of cost + price; tight[b] = the workers that reach it.
template <int B, class T, class Mask>
ESD_HD void tight_block(const T* costs, std::ptrdiff_t stride, const int* workers, int count, const T* prices, T* low,
                        Mask* tight) {
  const T* column = costs + workers[0] * stride;
  T price = prices[workers[0]];
  for (int b = 0; b < B; ++b) {
    low[b] = column[b] + price;
    tight[b] = 0;
  }
  for (int a = 1; a < count; ++a) {
    column = costs + workers[a] * stride;
    price = prices[workers[a]];
    for (int b = 0; b < B; ++b) {
      const T value = column[b] + price;
      low[b] = value < low[b] ? value : low[b];
    }
  }
  for (int a = 0; a < count; ++a) {
    column = costs + workers[a] * stride;
    price = prices[workers[a]];
    const Mask worker = only<Mask>(workers[a]);
    for (int b = 0; b < B; ++b) tight[b] |= column[b] + price == low[b] ? worker : Mask{0};
  }
}

// low[b] = min over workers of cost + price.
template <int B, class T>
ESD_HD void low_block(const T* costs, std::ptrdiff_t stride, const int* workers, int count, const T* prices, T* low) {
  const T* column = costs + workers[0] * stride;
  T price = prices[workers[0]];
  for (int b = 0; b < B; ++b) low[b] = column[b] + price;
  for (int a = 1; a < count; ++a) {
    column = costs + workers[a] * stride;
    price = prices[workers[a]];
    for (int b = 0; b < B; ++b) {
      const T value = column[b] + price;
      low[b] = value < low[b] ? value : low[b];
    }
  }
}

}  // namespace esd
