// The fixed point of float costs: integers are costs times a power of two.
#pragma once

#include "solver/hd.h"

namespace esd {

constexpr int kNarrowBits = 28;  // int32 problems: cost + price + step fit
constexpr int kWideBits = 51;

// Multiplies by 2^exponent without leaving the range of double on the way.
class PowerOfTwo {
 public:
  explicit ESD_HD PowerOfTwo(int exponent)
      : first_(ldexp(1.0, exponent / 2)), second_(ldexp(1.0, exponent - exponent / 2)) {}
  ESD_HD double operator()(double value) const { return value * first_ * second_; }

 private:
  double first_, second_;
};

// The power of two that gives `largest` `bits` bits.
ESD_HD int exponent_for(double largest, int bits) {
  if (largest == 0) return 0;
  int exponent;
  frexp(largest, &exponent);
  return bits - exponent;
}

ESD_HD bool is_integer(double value) { return value == static_cast<double>(static_cast<std::int32_t>(value)); }

template <class T>
ESD_HD T rounded(double value) {
  return static_cast<T>(value + 0.5);
}

// Optimal prices differ by at most the largest cost, so starts beyond that are cut off.
ESD_HD std::int64_t start_price(double price, double first, double largest, PowerOfTwo scale) {
  const double relative = price - first;
  return llround(scale(relative > largest ? largest : relative < -largest ? -largest : relative));
}

}  // namespace esd
