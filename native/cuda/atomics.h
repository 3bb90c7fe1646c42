// Atomic updates of what the threads of a team share. Order does not matter to any of them.
#pragma once

#include "solver/hd.h"

namespace esd {

// A value that other threads may be changing.
template <class T>
ESD_HD T peek(const T* place) {
#if defined(__CUDA_ARCH__)
  return *static_cast<const volatile T*>(place);
#else
  return __atomic_load_n(place, __ATOMIC_RELAXED);
#endif
}

// Returns the value before.
ESD_HD int add(int* place, int amount) {
#if defined(__CUDA_ARCH__)
  return atomicAdd(place, amount);
#else
  return __atomic_fetch_add(place, amount, __ATOMIC_RELAXED);
#endif
}

ESD_HD void add(std::int64_t* place, std::int64_t amount) {
#if defined(__CUDA_ARCH__)
  atomicAdd(reinterpret_cast<unsigned long long*>(place), static_cast<unsigned long long>(amount));
#else
  __atomic_fetch_add(place, amount, __ATOMIC_RELAXED);
#endif
}

// Most values are no news: reading first spares the atomic.
template <class T>
ESD_HD void lower(T* place, T value) {
  T seen = peek(place);
  if (value >= seen) return;
#if defined(__CUDA_ARCH__)
  atomicMin(place, value);
#else
  while (value < seen && !__atomic_compare_exchange_n(place, &seen, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
#endif
}

template <class T>
ESD_HD void raise(T* place, T value) {
  T seen = peek(place);
  if (value <= seen) return;
#if defined(__CUDA_ARCH__)
  atomicMax(place, value);
#else
  while (value > seen && !__atomic_compare_exchange_n(place, &seen, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
#endif
}

template <class Mask>
ESD_HD void include(Mask* place, Mask bits) {
  if ((peek(place) & bits) == bits) return;
#if defined(__CUDA_ARCH__)
  atomicOr(place, bits);
#else
  __atomic_fetch_or(place, bits, __ATOMIC_RELAXED);
#endif
}

// Writes `wanted` where there is 0. Returns what is there afterwards.
template <class Mask>
ESD_HD Mask settle(Mask* place, Mask wanted) {
  Mask seen = peek(place);
  if (seen != 0) return seen;
#if defined(__CUDA_ARCH__)
  seen = atomicCAS(place, Mask{0}, wanted);
#else
  __atomic_compare_exchange_n(place, &seen, wanted, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
#endif
  return seen == 0 ? wanted : seen;
}

}  // namespace esd
