// The caller's costs: checked, and turned into integers as the CPU solver does.
#pragma once

#include "cuda/atomics.h"
#include "cuda/task.h"
#include "solver/scale.h"

#if !defined(__CUDACC_RTC__)
#include <cstring>
#endif

namespace esd {

// Costs that are not negative order as their bits do.
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

// What all entries together tell.
struct Intake {
  std::int64_t most;  // bits of the largest cost
  int bad;            // first entry that is no cost
  int fractional;     // some cost is no integer in 28 bits
};

// What the costs of a problem are like.
struct Scale {
  int bad;  // first entry that is negative, infinite or NaN; -1: none
  double largest;
  int exponent;  // integers are costs times 2^exponent
  bool narrow;   // int32 is exact
};

constexpr int kNoEntry = 0x7fffffff;

template <class Team, class C>
ESD_HD Scale measure(Team& team, const C* costs, int entries, Intake* intake) {
  team.one([&] {
    intake->bad = kNoEntry;
    intake->most = 0;
    intake->fractional = 0;
  });
  team.each(entries, [&](int e) {
    if (is_cost(costs[e]))
      raise(&intake->most, order_bits(costs[e] + C{0}));  // -0 is 0
    else
      lower(&intake->bad, e);
  });
  Scale scale{intake->bad == kNoEntry ? -1 : intake->bad, cost_of_bits(intake->most, C{}), 0, false};
  if (scale.bad >= 0) return scale;
  if (C(0.5) == 0) {  // integers
    scale.narrow = scale.largest < 1 << kNarrowBits;
    return scale;
  }
  scale.exponent = exponent_for(scale.largest, kNarrowBits);
  const PowerOfTwo narrow(scale.exponent);
  team.each(entries, [&](int e) {
    if (!is_integer(narrow(static_cast<double>(costs[e])))) raise(&intake->fractional, 1);
  });
  scale.narrow = intake->fractional == 0;
  if (!scale.narrow) scale.exponent = exponent_for(scale.largest, kWideBits);
  return scale;
}

// Costs that serve as they are: int32 in a problem of int32. Null for all others.
template <class T>
ESD_HD const T* as_they_are(const T* costs, T) {
  return costs;
}
template <class T, class C>
ESD_HD const T* as_they_are(const C*, T) {
  return nullptr;
}

template <class Team, class C, class T, class Mask>
ESD_HD void convert(Team& team, const C* costs, const Scale& scale, Task<T, Mask>& task) {
  task.costs = as_they_are(costs, T{});
  if (task.costs != nullptr) return;
  const PowerOfTwo power(scale.exponent);
  const bool integers = C(0.5) == 0;
  team.each(task.rows * task.workers, [&](int e) {
    task.fixed[e] = integers ? static_cast<T>(costs[e]) : rounded<T>(power(static_cast<double>(costs[e])));
  });
  task.costs = task.fixed;
}

}  // namespace esd
