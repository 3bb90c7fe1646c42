// The caller's costs, checked and turned into integers by a team of threads, as solver/integer_costs.h does it.
#pragma once

#include "common/host_device.h"
#include "cuda/atomics.h"
#include "cuda/workspace.h"
#include "solver/fixed_point.h"

#if !defined(__CUDACC_RTC__)
#include <cstring>
#endif

namespace esd {

// The bits of costs that are not negative have the order of the costs, so an integer atomic finds the largest.
ESD_HD std::int64_t order_bits(std::int32_t cost) { return cost; }
ESD_HD std::int64_t order_bits(float cost) {
  std::int32_t bits;
  memcpy(&bits, &cost, sizeof bits);
  return bits;
}
ESD_HD std::int64_t order_bits(double cost) {
  std::int64_t bits;
  memcpy(&bits, &cost, sizeof bits);
  return bits;
}

ESD_HD double cost_of_bits(std::int64_t bits, std::int32_t) { return static_cast<double>(bits); }
ESD_HD double cost_of_bits(std::int64_t bits, float) {
  const auto low = static_cast<std::int32_t>(bits);
  float cost;
  memcpy(&cost, &low, sizeof cost);
  return cost;
}
ESD_HD double cost_of_bits(std::int64_t bits, double) {
  double cost;
  memcpy(&cost, &bits, sizeof cost);
  return cost;
}

ESD_HD bool is_cost(std::int32_t cost) { return cost >= 0; }
ESD_HD bool is_cost(double cost) { return cost >= 0 && cost - cost == 0; }  // neither infinite nor NaN

// The properties of the costs that the threads find together.
struct CostSummary {
  std::int64_t largest_bits;  // of the largest cost
  int bad;                    // the first entry that is not a cost
  int fractional;             // 1 when some cost is no integer in 28 bits
};

// The conversion of a problem's costs to integers.
struct CostScale {
  int bad;         // the first entry that is negative, infinite or NaN, -1 when there is none
  double largest;  // the largest cost
  int exponent;    // The integers are the costs times 2^exponent.
  bool narrow;     // whether int32 is exact
};

constexpr int kNoEntry = 0x7fffffff;

// Checks all costs and decides their scale.
template <typename Team, typename C>
ESD_HD CostScale measure_costs(Team& team, const C* costs, int entries, CostSummary* summary) {
  team.one([&] {
    summary->bad = kNoEntry;
    summary->largest_bits = 0;
    summary->fractional = 0;
  });
  team.each(entries, [&](int e) {
    if (is_cost(costs[e]))
      atomic_max(&summary->largest_bits, order_bits(costs[e] + C{0}));  // -0 is 0
    else
      atomic_min(&summary->bad, e);
  });
  CostScale scale{summary->bad == kNoEntry ? -1 : summary->bad, cost_of_bits(summary->largest_bits, C{}), 0, false};
  if (scale.bad >= 0) return scale;
  if (C(0.5) == 0) {  // C is an integer type.
    scale.narrow = scale.largest < 1 << kNarrowBits;
    return scale;
  }
  scale.exponent = exponent_for(scale.largest, kNarrowBits);
  const PowerOfTwo narrow(scale.exponent);
  team.each(entries, [&](int e) {
    if (!is_integer(narrow(static_cast<double>(costs[e])))) atomic_max(&summary->fractional, 1);
  });
  scale.narrow = summary->fractional == 0;
  if (!scale.narrow) scale.exponent = exponent_for(scale.largest, kWideBits);
  return scale;
}

// The costs themselves if they can be used unchanged, int32 in a problem of int32; null for all others.
template <typename T>
ESD_HD const T* as_they_are(const T* costs, T) {
  return costs;
}
template <typename T, typename C>
ESD_HD const T* as_they_are(const C*, T) {
  return nullptr;
}

// Points work.costs to the costs as integers, converted if necessary.
template <typename Team, typename C, typename T, typename Set>
ESD_HD void convert_costs(Team& team, const C* costs, const CostScale& scale, Workspace<T, Set>& work) {
  work.costs = as_they_are(costs, T{});
  if (work.costs != nullptr) return;
  const PowerOfTwo power(scale.exponent);
  const bool integers = C(0.5) == 0;
  team.each(work.rows * work.workers, [&](int e) {
    work.converted[e] = integers ? static_cast<T>(costs[e]) : rounded<T>(power(static_cast<double>(costs[e])));
  });
  work.costs = work.converted;
}

}  // namespace esd
