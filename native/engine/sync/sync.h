// A way to synchronise: when workers push what they have trained, and on which copies they train.
//
// The engine prepares, scores, commits and flushes; at the points where ways differ it calls a hook. A way has its own
// file, with its state, its options, their checks and its part of a snapshot; sync/python/ways.cpp lists all ways.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/workers.h"
#include "engine/plan/plan.h"
#include "engine/plan/replacement.h"
#include "engine/plan/state.h"
#include "engine/rows/index_types.h"
#include "engine/rows/row_state.h"
#include "engine/sync/owed_pushes.h"

namespace esd {

// What scores of a batch depend on.
struct Scoring {
  bool pushed_next = false;  // whether what an iteration trains is pushed in the next one
  bool together = true;  // whether workers that train a row each have a part of its training, or a copy of their own
};

// What a way keeps in a snapshot. The form is the same for all ways, so that each reads a snapshot of any other.
struct SavedSync {
  WorkerSet workers{};              // that train pinned rows together
  std::uint32_t flushed = 0;        // the iteration of the last flush
  std::vector<std::uint32_t> heat;  // by row number
  std::vector<std::uint8_t> flags;  // by row number
};

class Sync {
 public:
  explicit Sync(State& state) : state_(state), owed_(state.workers()) {}
  virtual ~Sync() = default;
  Sync& operator=(const Sync&) = delete;

  // The same way on the same state, with a copy of all that it keeps.
  virtual std::unique_ptr<Sync> clone() const = 0;

  virtual Scoring scoring() const { return {}; }

  // Announces the ids that a later iteration reads. Throws std::logic_error where they make no difference.
  virtual void look_ahead(const std::uint64_t* ids, std::size_t count, std::uint32_t iteration);

  // The hooks of a commit, in its order. Before anything has changed: workers that train rows besides those that their
  // samples use, and the room in every cache that stays taken by rows which the batch does not train.
  virtual void extend_trainers() {}
  virtual std::uint64_t pinned_room() const { return 0; }

  // The commit is certain. `limits` [workers] are the rows that each worker may push before they are needed; none: null.
  virtual void begin(const std::int64_t* /*limits*/, IterationPlans& /*plans*/) {}

  // Appends a worker's update pushes to its plan, whose needs are written.
  virtual void write_pushes(unsigned worker, WorkerPlan& plan, Arena& arena) = 0;

  // Makes room in a cache. Whether a copy that leaves owes a push is the way's to know: it hands `replacement` a test of
  // one copy, which is inlined, so that no call is made for each copy.
  virtual void make_room(unsigned worker, Replacement& replacement, const Slots& late_slots, Arena& arena,
                         WorkerPlan& plan);

  // Tells the policy of a cache which copies the iteration uses.
  virtual void use(CacheMirror& cache, const WorkerPlan& plan, const Arena& arena);

  // All caches have room, nothing is trained yet, and no pull is written.
  virtual void moved(IterationPlans& /*plans*/) {}

  // The state has advanced by one iteration.
  virtual void after(IterationPlans& /*plans*/) {}

  // The workers owe everything that the parameter server lacks; `write_owed` appends a worker's part to its flush.
  virtual void flush() = 0;
  void write_owed(unsigned worker, Arena& arena, WorkerFlush& flush) {
    owed_[worker].write(arena, flush.rows, flush.gradients);
    owed_[worker] = {};  // as long as the caches, where an iteration owes few rows
  }

  // Rows are about to leave the table; their numbers may be given to others.
  virtual void forget(const std::vector<RowNumber>& rows);

  // Whether the way remembers something of a row that no worker caches. If not, and if nothing is owed of the row, its
  // number may be given to another one, which `release` announces.
  virtual bool remembers(RowNumber /*row*/) const { return false; }
  virtual void release(RowNumber /*row*/) {}

  // The way's part of a snapshot. `save` throws std::logic_error when a flush must come first; `restore` is called when
  // the rest of the state is restored.
  virtual SavedSync save() const;
  virtual void restore(SavedSync&& saved);

  virtual std::size_t memory_bytes() const { return 0; }

 protected:
  Sync(const Sync&) = default;  // for `clone`

  // The worker must push its owned row, or its partial gradient of a split one. Ways call it for each row that they
  // train, so it is inlined.
  void owe(unsigned worker, RowNumber number, SlotIndex slot) {
    const RowState& row = state_.index[number];
    OwedPushes& owed = owed_[worker];
    (row.kind == kSplit ? owed.gradients : owed.rows)
        .emplace_back(row, state_.sizes.of_row(row.id), state_.directory.contributors(row), slot, state_.iteration);
  }

  // Rows become clean: all that is owed of them is pushed with the next plans. Some may be named several times.
  void settle(const std::vector<RowNumber>& numbers);

  // Sorts what a worker owes, and takes its copies of split rows for outdated.
  void outdate_owed(unsigned worker);

  // The copies of a row that was pinned take their place in the order of their caches, as if last used an iteration ago.
  void unpin(RowNumber number);

  State& state_;
  std::vector<OwedPushes> owed_;  // by worker
};

// A way with its options, as a job chooses it. `make` throws std::invalid_argument where they do not fit the state.
class Way {
 public:
  virtual ~Way() = default;
  virtual std::unique_ptr<Sync> make(State& state) const = 0;
};

// The way whose class is `S`, with `S::Options`.
template <typename S>
class WayOf : public Way {
 public:
  explicit WayOf(typename S::Options options = {}) : options_(std::move(options)) {}
  std::unique_ptr<Sync> make(State& state) const override { return std::make_unique<S>(state, options_); }

 private:
  typename S::Options options_;
};

}  // namespace esd
