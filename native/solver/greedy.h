// HybridDis' partition criteria and its heuristic Heu (ESD §4.3, Algorithm 2), on costs + prices.
#pragma once

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "common/hot.h"

namespace esd {

enum class Criterion { kMin2Min, kMin3Min, kMin3Min2, kRowMean };

template <class C>
ESD_HOT void criterion_values(const C* costs, int rows, int workers, const std::vector<int>& active,
                              const double* prices, Criterion criterion, double* values) {
  constexpr double kNone = std::numeric_limits<double>::infinity();
  for (int i = 0; i < rows; ++i) {
    const C* row = costs + static_cast<std::ptrdiff_t>(i) * workers;
    double first = kNone, second = kNone, third = kNone, sum = 0;
    for (int j : active) {
      const double value = static_cast<double>(row[j]) + prices[j];
      const double above_first = std::max(first, value);
      first = std::min(first, value);
      const double above_second = std::max(second, above_first);
      second = std::min(second, above_first);
      third = std::min(third, above_second);
      sum += value;
    }
    if (second == kNone) second = first;
    if (third == kNone) third = second;
    switch (criterion) {
      case Criterion::kMin2Min: values[i] = second - first; break;
      case Criterion::kMin3Min: values[i] = third - first; break;
      case Criterion::kMin3Min2: values[i] = third - second; break;
      case Criterion::kRowMean: values[i] = sum / static_cast<double>(active.size()); break;
    }
  }
}

// Indices by descending value, ties by ascending index: radix sort by the bytes that differ.
inline std::vector<std::uint32_t> descending_order(const std::vector<double>& values) {
  const std::size_t size = values.size();
  std::vector<std::uint64_t> keys(size), other_keys(size);
  std::uint64_t any = 0, all = ~std::uint64_t{0};
  for (std::size_t i = 0; i < size; ++i) {
    const double value = values[i] + 0.0;  // -0 is 0
    std::uint64_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const std::uint64_t sign = std::uint64_t{1} << 63;
    keys[i] = ~((bits & sign) ? ~bits : bits | sign);
    any |= keys[i];
    all &= keys[i];
  }
  std::vector<std::uint32_t> order(size), other(size);
  std::iota(order.begin(), order.end(), 0U);
  for (int shift = 0; shift < 64; shift += 8) {
    if ((((any ^ all) >> shift) & 0xff) == 0) continue;
    std::size_t starts[257] = {};
    for (std::uint64_t key : keys) ++starts[((key >> shift) & 0xff) + 1];
    std::partial_sum(starts, starts + 257, starts);
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t place = starts[(keys[i] >> shift) & 0xff]++;
      other_keys[place] = keys[i];
      other[place] = order[i];
    }
    keys.swap(other_keys);
    order.swap(other);
  }
  return order;
}

// Each row of `order` in turn takes the cheapest worker with room, ties to the lowest. Uses `room` [n] up.
template <class C>
void greedy(const C* costs, int workers, const std::uint32_t* order, std::size_t count, const double* prices,
            std::vector<int>& room, std::int32_t* worker_of) {
  std::vector<int> open;
  for (int j = 0; j < workers; ++j)
    if (room[static_cast<std::size_t>(j)] > 0) open.push_back(j);
  for (std::size_t r = 0; r < count; ++r) {
    const C* row = costs + static_cast<std::ptrdiff_t>(order[r]) * workers;
    std::size_t best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t a = 0; a < open.size(); ++a) {
      const double value = static_cast<double>(row[open[a]]) + prices[open[a]];
      if (value < least) {
        least = value;
        best = a;
      }
    }
    worker_of[r] = open[best];
    if (--room[static_cast<std::size_t>(open[best])] == 0) open.erase(open.begin() + static_cast<std::ptrdiff_t>(best));
  }
}

}  // namespace esd
