// Sets of workers: caching a row, training it, with too low a price, and so on. One type for the engine, the joint
// search, the solvers and the CUDA kernels.
//
// A module is compiled for sets of up to ESD_WORKERS workers, 64 if it is not defined: the engine is compiled twice, so
// that a job of up to 64 workers pays nothing for larger ones (native/engine/CMakeLists.txt).
#pragma once

#include "common/host_device.h"

namespace esd {

// A set is the bits of one integer, bit j being worker j, and costs what the integer costs: it is trivial (a local set is
// undefined until it is assigned, `Set{}` is empty), and every function is inlined. `bits` is the integer itself, for
// code that hashes it, changes it atomically or sends it.
template <typename Bits>
struct WorkerSetOf {
  Bits bits;

  ESD_HD static WorkerSetOf only(int worker) { return {static_cast<Bits>(Bits{1} << worker)}; }
  ESD_HD static WorkerSetOf all() { return {static_cast<Bits>(~Bits{0})}; }
  // The first workers, one at least.
  ESD_HD static WorkerSetOf first_of(unsigned workers) {
    return {static_cast<Bits>(static_cast<Bits>(~Bits{0}) >> (8 * sizeof(Bits) - workers))};
  }

  ESD_HD bool empty() const { return bits == 0; }
  ESD_HD bool contains(int worker) const { return bits >> worker & 1; }
  ESD_HD bool several() const { return (bits & (bits - 1)) != 0; }  // two workers or more

  // Of a set that is not empty, the lowest and the highest worker.
  ESD_HD int first() const {
#if defined(__CUDA_ARCH__)
    return __ffsll(static_cast<long long>(bits)) - 1;
#else
    const auto low = static_cast<std::uint64_t>(bits);
    if constexpr (sizeof(Bits) > sizeof low) {
      if (low == 0) return 64 + __builtin_ctzll(static_cast<std::uint64_t>(bits >> 64));
    }
    return __builtin_ctzll(low);
#endif
  }
  ESD_HD int last() const {
#if defined(__CUDA_ARCH__)
    return 63 - __clzll(static_cast<long long>(bits));
#else
    if constexpr (sizeof(Bits) > sizeof(std::uint64_t)) {
      const auto high = static_cast<std::uint64_t>(bits >> 64);
      if (high != 0) return 127 - __builtin_clzll(high);
    }
    return 63 - __builtin_clzll(static_cast<std::uint64_t>(bits));
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

using NarrowWorkerSet = WorkerSetOf<std::uint32_t>;  // of up to 32 workers, for kernels that gain by half the width

#if defined(ESD_WORKERS) && ESD_WORKERS > 64
static_assert(ESD_WORKERS == 128, "sets of workers have 64 or 128 bits");
__extension__ using WorkerBits = unsigned __int128;
#else
using WorkerBits = std::uint64_t;
#endif
using WorkerSet = WorkerSetOf<WorkerBits>;
constexpr int kMaxWorkers = 8 * sizeof(WorkerBits);

}  // namespace esd
