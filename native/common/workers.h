// Sets of workers: caching a row, training it, with too low a price, and so on. One type for the engine, the joint
// search, the solvers and the CUDA kernels.
#pragma once

#include "common/host_device.h"

namespace esd {

// A set is the bits of one word, bit j being worker j, and costs what the word costs: it is trivial (a local set is
// undefined until it is assigned, `Set{}` is empty), and every function is inlined. `bits` is the word itself, for code
// that hashes it, changes it atomically or sends it.
template <typename Bits>
struct WorkerSetOf {
  Bits bits;

  ESD_HD static WorkerSetOf only(int worker) { return {static_cast<Bits>(Bits{1} << worker)}; }
  ESD_HD static WorkerSetOf all() { return {static_cast<Bits>(~Bits{0})}; }

  ESD_HD bool empty() const { return bits == 0; }
  ESD_HD bool contains(int worker) const { return bits >> worker & 1; }
  ESD_HD bool several() const { return (bits & (bits - 1)) != 0; }  // two workers or more

  // Of a set that is not empty, the lowest and the highest worker.
  ESD_HD int first() const {
#if defined(__CUDA_ARCH__)
    return __ffsll(static_cast<long long>(bits)) - 1;
#else
    return __builtin_ctzll(bits);
#endif
  }
  ESD_HD int last() const {
#if defined(__CUDA_ARCH__)
    return 63 - __clzll(static_cast<long long>(bits));
#else
    return 63 - __builtin_clzll(bits);
#endif
  }

  // Without branches, because branch prediction would often fail on whether a set is empty.
  ESD_HD int first_or_0() const { return WorkerSetOf{bits | Bits{bits == 0}}.first(); }
  ESD_HD WorkerSetOf without_first() const { return {static_cast<Bits>(bits & (bits - 1))}; }
  // This set if the condition holds, otherwise the empty one.
  ESD_HD WorkerSetOf when(bool condition) const { return {static_cast<Bits>(bits & -Bits{condition})}; }

  ESD_HD void add(int worker) { bits |= Bits{1} << worker; }
  ESD_HD void remove(int worker) { bits &= ~(Bits{1} << worker); }

  // Calls `visit(worker)` for every worker, ascending.
  template <typename Visit>
  ESD_HD void for_each(Visit visit) const {
    for (WorkerSetOf rest = *this; !rest.empty(); rest = rest.without_first()) visit(rest.first());
  }

  friend ESD_HD WorkerSetOf operator|(WorkerSetOf a, WorkerSetOf b) { return {a.bits | b.bits}; }
  friend ESD_HD WorkerSetOf operator&(WorkerSetOf a, WorkerSetOf b) { return {a.bits & b.bits}; }
  friend ESD_HD WorkerSetOf operator-(WorkerSetOf a, WorkerSetOf b) { return {a.bits & ~b.bits}; }  // in a, not in b
  friend ESD_HD bool operator==(WorkerSetOf a, WorkerSetOf b) { return a.bits == b.bits; }
  friend ESD_HD bool operator!=(WorkerSetOf a, WorkerSetOf b) { return a.bits != b.bits; }
  ESD_HD WorkerSetOf& operator|=(WorkerSetOf other) { return *this = *this | other; }
  ESD_HD WorkerSetOf& operator&=(WorkerSetOf other) { return *this = *this & other; }
  ESD_HD WorkerSetOf& operator-=(WorkerSetOf other) { return *this = *this - other; }
};

constexpr int kMaxWorkers = 64;

using WorkerSet = WorkerSetOf<std::uint64_t>;
using NarrowWorkerSet = WorkerSetOf<std::uint32_t>;  // of up to 32 workers, for kernels that gain by half the width

}  // namespace esd
