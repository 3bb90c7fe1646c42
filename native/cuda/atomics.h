// Atomic updates of values that the threads of a team share. No result depends on the order of the threads.
#pragma once

#include "common/host_device.h"
#include "common/workers.h"

namespace esd {

// Reads a value that other threads may be changing.
template <typename T>
ESD_HD T atomic_load(const T* place) {
#if defined(__CUDA_ARCH__)
  return *static_cast<const volatile T*>(place);
#else
  return __atomic_load_n(place, __ATOMIC_RELAXED);
#endif
}

// Adds and returns the value before.
ESD_HD int atomic_add(int* place, int amount) {
#if defined(__CUDA_ARCH__)
  return atomicAdd(place, amount);
#else
  return __atomic_fetch_add(place, amount, __ATOMIC_RELAXED);
#endif
}

ESD_HD void atomic_add(std::int64_t* place, std::int64_t amount) {
#if defined(__CUDA_ARCH__)
  atomicAdd(reinterpret_cast<unsigned long long*>(place), static_cast<unsigned long long>(amount));
#else
  __atomic_fetch_add(place, amount, __ATOMIC_RELAXED);
#endif
}

// Lowers or raises a shared minimum or maximum. Most values change nothing, so reading first spares the atomic.
template <typename T>
ESD_HD void atomic_min(T* place, T value) {
  T seen = atomic_load(place);
  if (value >= seen) return;
#if defined(__CUDA_ARCH__)
  atomicMin(place, value);
#else
  while (value < seen && !__atomic_compare_exchange_n(place, &seen, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
#endif
}

template <typename T>
ESD_HD void atomic_max(T* place, T value) {
  T seen = atomic_load(place);
  if (value <= seen) return;
#if defined(__CUDA_ARCH__)
  atomicMax(place, value);
#else
  while (value > seen && !__atomic_compare_exchange_n(place, &seen, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
#endif
}

// Adds workers to a shared set.
template <typename Bits>
ESD_HD void atomic_include(WorkerSetOf<Bits>* place, WorkerSetOf<Bits> workers) {
  if ((atomic_load(&place->bits) & workers.bits) == workers.bits) return;
#if defined(__CUDA_ARCH__)
  atomicOr(&place->bits, workers.bits);
#else
  __atomic_fetch_or(&place->bits, workers.bits, __ATOMIC_RELAXED);
#endif
}

// Writes the set `wanted` where there is an empty one. Returns what is there afterwards.
template <typename Bits>
ESD_HD WorkerSetOf<Bits> atomic_claim(WorkerSetOf<Bits>* place, WorkerSetOf<Bits> wanted) {
  Bits seen = atomic_load(&place->bits);
  if (seen != 0) return {seen};
#if defined(__CUDA_ARCH__)
  seen = atomicCAS(&place->bits, Bits{0}, wanted.bits);
#else
  __atomic_compare_exchange_n(&place->bits, &seen, wanted.bits, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
#endif
  return seen == 0 ? wanted : WorkerSetOf<Bits>{seen};
}

}  // namespace esd
