// Running sums by a block of threads, in index order for any number of threads.
#pragma once

#include "common/host_device.h"

namespace esd {

constexpr int kBlockThreads = 1024;

// Calls use(i, sum of value(h) over h < i, value(i)) for every i < count and returns the total. `sums` is scratch,
// [2 * kBlockThreads]. use(i, ...) may change what value(i) reads, but nothing that value(h) reads for another h.
template <typename Block, typename Value, typename Use>
ESD_HD int scan(Block& block, int* sums, int count, Value value, Use use) {
  if (count == 0) return 0;
  const int share = (count + block.size() - 1) / block.size();
  const int busy = (count + share - 1) / share;  // the threads that have a share
  block.each(busy, [&](int thread) {
    const int end = count - thread * share < share ? count : (thread + 1) * share;
    int sum = 0;
    for (int i = thread * share; i < end; ++i) sum += value(i);
    sums[thread] = sum;
  });
  int* from = sums;
  int* to = sums + kBlockThreads;
  for (int distance = 1; distance < busy; distance *= 2) {
    block.each(busy,
               [&](int thread) { to[thread] = from[thread] + (thread >= distance ? from[thread - distance] : 0); });
    int* other = from;
    from = to;
    to = other;
  }
  const int total = from[busy - 1];
  block.each(busy, [&](int thread) {
    const int end = count - thread * share < share ? count : (thread + 1) * share;
    int sum = thread > 0 ? from[thread - 1] : 0;
    for (int i = thread * share; i < end; ++i) {
      const int here = value(i);
      use(i, sum, here);
      sum += here;
    }
  });
  return total;
}

}  // namespace esd
