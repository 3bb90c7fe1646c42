// Greedy heuristics, which assign samples one after another to the best worker with room: HybridDis' partition criteria
// and its heuristic Heu (ESD §4.3, Algorithm 2), and Herald's allocation (Alg. 1, lines 8-12).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "common/hot.h"
#include "common/mix64.h"

namespace esd {

// The ranking of a sample by its costs + prices; "min2" is the second smallest of them.
enum class Criterion { kMin2Min, kMin3Min, kMin3Min2, kRowMean };

// Writes the criterion of each row of costs + prices over the active workers to `values` [rows]. For a row of fewer
// than p costs the p-th smallest is its largest.
template <typename C>
ESD_HOT void criterion_values(const C* costs, int rows, int workers, const std::vector<int>& active,
                              const double* prices, Criterion criterion, double* values) {
  constexpr double kMissing = std::numeric_limits<double>::infinity();
  for (int i = 0; i < rows; ++i) {
    const C* row = costs + static_cast<std::ptrdiff_t>(i) * workers;
    double first = kMissing, second = kMissing, third = kMissing, sum = 0;
    for (int j : active) {
      const double value = static_cast<double>(row[j]) + prices[j];
      const double above_first = std::max(first, value);
      first = std::min(first, value);
      const double above_second = std::max(second, above_first);
      second = std::min(second, above_first);
      third = std::min(third, above_second);
      sum += value;
    }
    if (second == kMissing) second = first;
    if (third == kMissing) third = second;
    switch (criterion) {
      case Criterion::kMin2Min: values[i] = second - first; break;
      case Criterion::kMin3Min: values[i] = third - first; break;
      case Criterion::kMin3Min2: values[i] = third - second; break;
      case Criterion::kRowMean: values[i] = sum / static_cast<double>(active.size()); break;
    }
  }
}

// Returns the indices by descending value, ties by ascending index: a radix sort by the bytes that differ.
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
      const std::size_t target = starts[(keys[i] >> shift) & 0xff]++;
      other_keys[target] = keys[i];
      other[target] = order[i];
    }
    keys.swap(other_keys);
    order.swap(other);
  }
  return order;
}

// The workers that still have room, ascending; `take` uses up one of a worker's free places.
class OpenWorkers {
 public:
  explicit OpenWorkers(std::vector<int> room) : room_(std::move(room)) {
    for (std::size_t j = 0; j < room_.size(); ++j)
      if (room_[j] > 0) workers_.push_back(j);
  }

  std::size_t size() const { return workers_.size(); }
  std::size_t operator[](std::size_t index) const { return workers_[index]; }

  // Takes one place of the worker at `index` and returns the worker.
  std::int32_t take(std::size_t index) {
    const std::size_t worker = workers_[index];
    if (--room_[worker] == 0) workers_.erase(workers_.begin() + static_cast<std::ptrdiff_t>(index));
    return static_cast<std::int32_t>(worker);
  }

 private:
  std::vector<int> room_;
  std::vector<std::size_t> workers_;
};

// Gives each row of `order` in turn to the worker with the least cost + price that has room, ties to the lowest worker.
// `room` [n] sums to at least `count`; `worker_of` [count] follows `order`.
template <typename C>
void greedy(const C* costs, int workers, const std::uint32_t* order, std::size_t count, const double* prices,
            std::vector<int> room, std::int32_t* worker_of) {
  OpenWorkers open(std::move(room));
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
    worker_of[r] = open.take(best);
  }
}

// Gives each sample in turn to the worker with room that scores highest. `scores` is [samples, workers], `room`
// [workers] sums to at least `samples`, `worker_of` is [samples]. Ties are broken by uniform draws, entry after entry
// of splitmix64's sequence from `start`.
inline void allocate(const std::int32_t* scores, std::size_t samples, std::size_t workers, std::uint64_t start,
                     std::vector<int> room, std::int32_t* worker_of) {
  constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15ULL;
  if (samples == 0) return;
  const std::int32_t highest = *std::max_element(scores, scores + samples * workers);
  OpenWorkers open(std::move(room));
  for (std::size_t i = 0; i < samples; ++i, scores += workers) {
    std::size_t best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t a = 0; a < open.size(); ++a) {
      // The integer part ranks by score, the fraction in [0, 1) breaks ties.
      const std::uint64_t draw = mix64(start + (i * workers + open[a] + 1) * kStep) >> 11;
      const double cost = static_cast<double>(highest - scores[open[a]]) + static_cast<double>(draw) * 0x1p-53;
      best = cost < least ? a : best;
      least = cost < least ? cost : least;
    }
    worker_of[i] = open.take(best);
  }
}

}  // namespace esd
