// What the engine knows about one embedding row (docs/semantics.md).
//
//   byte 0        8         16                20                   24                             28
//        | id     | holders | version   kind  | last_use trainings | location pinned     life      | slot |
//        | 64     | 64      | 30        2     | 28       4         | 8        1          23        | 32   |   bits
//
// These are 32 bytes, so two rows share a cache line and none straddles two. They are 48 where sets have two words.
#pragma once

#include <cstdint>

#include "common/workers.h"

namespace esd {

// Who has the latest value, and what the row's `holders` are.
enum RowKind : std::uint32_t {
  kClean,    // the parameter server and the holders have the latest value; of a pinned row only the holders may
  kOwned,    // the one holder has it, the parameter server is behind
  kSplit,    // nobody has it: the holders have partial gradients that they have not pushed
  kSettled,  // clean after a flush of a split row: the holders cache outdated copies that they trained last
};

// Where a row is: the number of the only worker that caches it, or one of these.
enum RowLocation : std::uint32_t {
  kShared = kMaxWorkers,  // cached by several workers, or split: `slot` numbers a record of the copy directory
  kInBatch,               // checked out to the prepared batch: `slot` is the row's BatchIndex
  kNowhere,               // cached by no worker: `slot` is the iteration from which on that is so
  kUnused,                // there is no row: its number is free
};

constexpr std::uint32_t kMaxVersion = (1u << 30) - 1;
constexpr std::uint32_t kMaxIteration = (1u << 28) - 1;
constexpr std::uint32_t kMaxLife = (1u << 23) - 1;  // full versions stay below 2^53
constexpr std::uint32_t kManyTrainings = 15;        // rows that were trained more often are alike

// A row is born with its initial values in an even life, and in an odd one with what the parameter server has: the engine
// knew the row once, or may have (engine/release.cpp).
inline bool continues(std::uint32_t life) { return (life & 1) != 0; }

// The full version of a row that is born in a life and not trained yet (services/domain/versions.py).
inline std::int64_t first_version(std::uint32_t life) { return std::int64_t{life} << 30; }

inline std::uint32_t life_of(std::int64_t full_version) { return static_cast<std::uint32_t>(full_version >> 30); }

struct RowState {
  std::uint64_t id;
  WorkerSet holders;            // as `kind` says
  std::uint32_t version : 30;   // how many iterations have trained the row in its present life
  std::uint32_t kind : 2;       // RowKind
  std::uint32_t last_use : 28;  // the last of these iterations; meaningless at version 0
  std::uint32_t trainings : 4;  // in all its lives, as far as is known, up to kManyTrainings
  std::uint32_t location : 8;   // a worker, or RowLocation
  std::uint32_t pinned : 1;     // whether its copies stay in their caches, in no order of replacement
  std::uint32_t life : 23;      // meaningless at version 0
  std::uint32_t slot;           // SlotIndex at the only worker that caches the row, or what `location` says

  // The version as plans and the parameter server name it: above every version of the row's earlier lives.
  std::int64_t full_version() const { return first_version(life) + version; }

  // Whether the iteration trained the row. There are no branches here and in `latest`: rows come in the order of their
  // ids, on which branches could hardly be predicted.
  bool used_in(std::uint32_t iteration) const { return (version > 0) & (last_use == iteration); }

  // The workers that can train the row without a pull.
  WorkerSet latest() const { return holders.when((kind == kClean) | (kind == kOwned)); }
};
static_assert(sizeof(RowState) == (kMaxWorkers <= 64 ? 32 : 48));

// Whether a row that is pulled at this full version was never trained, so that the worker makes it. Of a row that continues
// an earlier life the server knows that, and here it is an estimate by the row's trainings in all lives.
inline bool pulled_initial(std::int64_t full_version, std::uint32_t trainings) {
  const bool untrained = (full_version & kMaxVersion) == 0, continued = continues(life_of(full_version));
  return untrained & (!continued | (trainings == 0));
}

// Whether a worker that pulls a row for a training by `trainers` needs no optimizer state: the server takes the step of a
// split row, and an initial row has none but zeros.
inline bool pulled_stateless(WorkerSet trainers, std::int64_t full_version, std::uint32_t trainings) {
  return trainers.several() | pulled_initial(full_version, trainings);
}

}  // namespace esd
