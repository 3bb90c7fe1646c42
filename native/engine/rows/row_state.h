// What the engine knows about one embedding row (docs/semantics.md).
#pragma once

#include <cstdint>

namespace esd {

using WorkerMask = std::uint64_t;  // bit j: worker j

inline WorkerMask worker_bit(unsigned worker) { return WorkerMask{1} << worker; }
inline unsigned first_worker(WorkerMask mask) { return static_cast<unsigned>(__builtin_ctzll(mask)); }
inline unsigned first_worker_or_0(WorkerMask mask) { return first_worker(mask | WorkerMask{mask == 0}); }  // no branch
inline bool several(WorkerMask mask) { return mask & (mask - 1); }

inline WorkerMask all_if(bool condition) { return -WorkerMask{condition}; }

// Calls `visit(worker)` for every worker of a set, in slot order.
template <typename Visit>
void for_each_worker(WorkerMask mask, Visit visit) {
  for (; mask; mask &= mask - 1) visit(first_worker(mask));
}

enum RowKind : std::uint32_t {
  kClean,    // the parameter server has the latest value, and so have the workers in `mask`
  kOwned,    // the one worker in `mask` has it, the parameter server is behind
  kSplit,    // nobody has it: the workers in `mask` hold partial gradients that they have not pushed
  kSettled,  // clean after a flush of a split row: the workers in `mask` cache outdated copies that they trained last
};

// Where a row is cached: at one worker, or ...
enum RowPlace : std::uint32_t {
  kShared = 64,  // at several, or split: `slot` numbers a record of the copy directory
  kInBatch,      // the state is in the prepared batch, for the time being: `slot` is its number there
  kNowhere,
  kUnused,  // there is no row: its number is free
};

constexpr std::uint32_t kMaxVersion = (1u << 30) - 1;
constexpr std::uint32_t kMaxLife = (1u << 23) - 1;  // full versions stay below 2^53

// Of a row that is born in a life, and not trained yet (services/domain/versions.py).
inline std::int64_t first_version(std::uint32_t life) { return std::int64_t{life} << 30; }

// 32 bytes, so that two rows share a cache line and none straddles.
struct RowState {
  std::uint64_t id;
  WorkerMask mask;             // its meaning depends on `kind`
  std::uint32_t version : 30;  // iterations that have trained the row in its present life
  std::uint32_t kind : 2;      // RowKind
  std::uint32_t last_use;      // the last of these iterations; meaningless at version 0
  std::uint32_t place : 8;     // RowPlace, or the worker that caches the row
  std::uint32_t life : 24;     // of the row; meaningless at version 0
  std::uint32_t slot;          // its slot there

  // As plans and the parameter server name it: above every version of the row's earlier lives.
  std::int64_t full_version() const { return first_version(life) + version; }

  // Without branches, as `latest`: on rows in the order of their ids they could hardly be predicted.
  bool used_in(std::uint32_t iteration) const { return (version > 0) & (last_use == iteration); }

  // Workers that can train the row without a pull.
  WorkerMask latest() const { return mask & all_if((kind == kClean) | (kind == kOwned)); }
};
static_assert(sizeof(RowState) == 32);

}  // namespace esd
