// What the steps of the algorithms need that CUDA compiles as well: worker sets as plain words, the largest integers.
#pragma once

#if !defined(__CUDACC_RTC__)
#include <cmath>
#endif

#include "common/workers.h"

namespace esd {

// Worker sets are bit masks: uint32_t up to 32 workers, uint64_t up to 64.
template <class Mask>
ESD_HD int lowest_worker(Mask set) {
#if defined(__CUDA_ARCH__)
  return __ffsll(static_cast<long long>(set)) - 1;
#else
  return __builtin_ctzll(static_cast<unsigned long long>(set));
#endif
}

template <class Mask>
ESD_HD int highest_worker(Mask set) {
#if defined(__CUDA_ARCH__)
  return 63 - __clzll(static_cast<long long>(set));
#else
  return 63 - __builtin_clzll(static_cast<unsigned long long>(set));
#endif
}

template <class Mask>
ESD_HD bool is_single(Mask set) {
  return (set & (set - 1)) == 0;
}

template <class T>
constexpr T kMost = static_cast<T>((std::uint64_t{1} << (sizeof(T) * 8 - 1)) - 1);  // of a signed integer type

template <class Mask>
ESD_HD Mask only(int worker) {
  return static_cast<Mask>(Mask{1} << worker);
}

}  // namespace esd
