// The arithmetic of fixed point: a solve works on integers, the costs times a power of two.
//
// The CPU's passes (solver/integer_costs.h) and those of CUDA (cuda/integer_costs.h) share it, so that both round
// alike.
#pragma once

#if !defined(__CUDACC_RTC__)
#include <cmath>
#endif

#include "common/host_device.h"

namespace esd {

constexpr int kNarrowBits = 28;  // of the largest cost in an int32 problem, where cost + price + step must fit
constexpr int kWideBits = 51;    // of the largest cost in an int64 problem, so that prices are exact in a double

// Multiplies by 2^exponent without leaving the range of double on the way.
class PowerOfTwo {
 public:
  explicit ESD_HD PowerOfTwo(int exponent)
      : first_(ldexp(1.0, exponent / 2)), second_(ldexp(1.0, exponent - exponent / 2)) {}
  ESD_HD double operator()(double value) const { return value * first_ * second_; }

 private:
  double first_, second_;
};

// The exponent of the power of two that gives `largest` exactly `bits` bits before the point.
ESD_HD int exponent_for(double largest, int bits) {
  if (largest == 0) return 0;
  int exponent;
  frexp(largest, &exponent);
  return bits - exponent;
}

ESD_HD bool is_integer(double value) { return value == static_cast<double>(static_cast<std::int32_t>(value)); }

template <typename T>
ESD_HD T rounded(double value) {
  return static_cast<T>(value + 0.5);
}

// The integer start of a price, relative to the first worker's. Optimal prices differ by at most the largest cost, so a
// start beyond that is cut off.
ESD_HD std::int64_t start_price(double price, double first, double largest, PowerOfTwo scale) {
  const double relative = price - first;
  return llround(scale(relative > largest ? largest : relative < -largest ? -largest : relative));
}

}  // namespace esd
