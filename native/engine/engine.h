// The dispatch engine: the state of all rows and the mirrors of all caches of one job (docs/semantics.md).
//
// An iteration is `prepare`, a decision on what `costs`, `affinity`, `room_needed` or `joint` say of the batch, and
// `commit`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/batch/prepared_batch.h"
#include "engine/batch/preview.h"
#include "engine/batch/row_limit.h"
#include "engine/batch/row_sizes.h"
#include "engine/batch/trainers.h"
#include "engine/batch/training_history.h"
#include "engine/cache/cache_mirror.h"
#include "engine/cache/hot_rows.h"
#include "engine/cache/replication.h"
#include "engine/joint/reuse.h"
#include "engine/joint/search.h"
#include "engine/plan/flush_queue.h"
#include "engine/plan/owed_pushes.h"
#include "engine/plan/plan.h"
#include "engine/plan/replacement.h"
#include "engine/plan/staleness.h"
#include "engine/plan/worker_lists.h"
#include "engine/rows/copy_directory.h"
#include "engine/rows/index_types.h"
#include "engine/rows/state_index.h"

namespace esd {

// The rows that one iteration trains at some worker do not fit its cache.
struct CacheTooSmall : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Engine {
 public:
  // `cache_sizes` is the room of each cache, in units of row size; see RowSizes for `table_sizes` and
  // both shares, RowLimit for `max_rows`. With `push_trained` every row that an iteration trains is pushed in the
  // next one, else only what somebody needs; with `flush_ahead` also what `commit` is asked to push before that. The
  // rows that `replication` chooses are not pushed but trained by all workers, until they leave. With `bounds`, workers
  // train on copies that may be stale; see Staleness for `additive`. With `direct`, plans say which rows go straight from
  // the worker that owns them to the only one that trains them.
  Engine(std::vector<std::uint32_t> cache_sizes, std::string policy, std::vector<std::uint32_t> table_sizes = {},
         std::uint64_t max_rows = 0, RowSizes::Shares gradient_shares = {}, RowSizes::Shares value_shares = {},
         bool push_trained = false, bool flush_ahead = false, Replication replication = {},
         std::optional<StalenessBounds> bounds = {}, std::vector<bool> additive = {}, bool direct = false);
  Engine(const Engine&) = delete;  // `replacement_` refers to members
  Engine& operator=(const Engine&) = delete;

  // Looks a batch up, in place of one that was prepared and not committed. Engines that prepare the same batch can share
  // what was found out about its ids.
  void prepare(const SampleIds& ids);
  void prepare(const BatchIds& ids);
  const PreparedBatch& batch() const;  // throws std::logic_error when none is prepared

  // Scores of the prepared batch, as batch/scores.h says. Throw std::invalid_argument when link costs or fields are out
  // of range.
  void costs(const std::int32_t* link_costs, std::int32_t* out) const;
  void affinity(std::int32_t* out) const;
  void affinity(const std::vector<std::uint32_t>& fields, std::int32_t* out) const;  // over some fields only
  void room_needed(std::int32_t* out) const;

  // See TrainingHistory: the first call begins to count trainings.
  void training_shares(std::int32_t* out);

  // What `assignment` [samples] of the prepared batch would train and move. Throws std::invalid_argument when a worker is
  // out of range.
  Preview preview(const std::int32_t* assignment) const;

  // Places the samples of the prepared batch together. Throws std::invalid_argument when the request does not fit the
  // batch.
  JointResult joint(const JointRequest& request) const;

  // Trains the prepared batch as `assignment` [samples] says: forgets rows, plans update pushes, evictions and pulls,
  // and advances the state by one iteration. Throws std::invalid_argument or CacheTooSmall when that is not possible;
  // the batch then stays prepared.
  // `flush_limits` [workers] is how many rows each worker pushes ahead of their need at most; none does without.
  IterationPlans commit(const std::int32_t* assignment, Arena&& arena, const std::int64_t* flush_limits = nullptr);

  // Tells which ids a later iteration will read, so that what is pushed ahead is what is needed first (flush_ahead.cpp).
  // Throws std::invalid_argument when the iteration is not one of the next FlushQueue::kSteps - 1.
  void look_ahead(const std::uint64_t* ids, std::size_t count, std::uint32_t iteration);

  // Makes the workers push everything that the parameter server lacks. All rows are clean afterwards.
  FlushPlans flush(Arena&& arena);

  // The whole state as bytes, and back (snapshot.cpp). Where `warm` is false, the caches are left empty. A prepared
  // batch is no part of a snapshot, and forgotten by `restore`. With `push_trained`, `replication` or `bounds` there is a
  // snapshot after a flush only: `snapshot` throws std::logic_error otherwise.
  std::string snapshot();
  void restore(const char* data, std::size_t size, bool warm);

  unsigned workers() const { return static_cast<unsigned>(caches_.size()); }
  std::uint32_t iteration() const { return iteration_; }
  std::size_t distinct() const { return prepared_ ? batch_.distinct() : 0; }
  std::uint64_t lookups() const { return lookups_; }
  std::uint64_t hits() const { return hits_; }
  const StateIndex& index() const { return index_; }
  const CacheMirror& cache(unsigned worker) const { return *caches_[worker]; }
  std::size_t cache_bytes() const;
  std::size_t memory_bytes() const;

 private:
  std::vector<std::unique_ptr<CacheMirror>> make_caches() const;
  void check_link_costs(const std::int32_t* link_costs) const;
  void check_limits(const JointRequest& request) const;

  void look_up();

  // Move the states of the batch's rows out of the state index, and back.
  void check_out();
  void check_in();

  // The steps of `commit`.
  void check_room() const;
  IterationPlans empty_plans(Arena&& arena) const;
  void forget_rows(IterationPlans& plans);
  TransferRow discard_copy(RowNumber number, unsigned worker);
  void make_room(unsigned worker, IterationPlans& plans);
  void train(const IterationPlans& plans);
  void write_pushes(unsigned worker, WorkerPlan& plan, Arena& arena);
  void flush_ahead(const std::int64_t* limits, IterationPlans& plans);
  void give_away(unsigned worker, RowNumber number);
  void await_flush();

  // Bounded staleness (bounded.cpp).
  void give(unsigned worker, RowNumber number, SlotIndex slot);
  void synchronise(IterationPlans& plans);
  void pull_spent_copies();
  void list_given(unsigned worker);
  void name_evicted(const WorkerPlan& plan, Arena& arena);
  void name_copies(unsigned worker, const WorkerPlan& plan, Arena& arena);
  void count_updates(IterationPlans& plans);
  void judge_copies(RowNumber number, WorkerSet before);
  void outdate_spent();
  void give_all();
  void keep_nothing_of(std::vector<RowNumber> forgotten);
  void restore_staleness();

  void owe_all();
  void extend_trainers();
  void join_replicated();
  void mark_replicated(unsigned worker, WorkerPlan& plan, Arena& arena);
  void use_copies(CacheMirror& cache, const WorkerPlan& plan, const Arena& arena);
  void count_idle(IterationPlans& plans) const;
  void swap_replicated();
  void release(RowNumber number);
  void restore_replicated(WorkerSet workers);
  void owe_trained(const IterationPlans& plans);
  void owe(unsigned worker, RowNumber number, SlotIndex slot);
  void settle(const std::vector<RowNumber>& numbers);
  void count_hits(const IterationPlans& plans);
  void choose_hot_rows();
  void place_slots(IterationPlans& plans) const;
  void place_slots(FlushPlans& plans) const;

  const std::vector<std::uint32_t> cache_sizes_;
  const std::string policy_;
  const bool push_trained_, flush_ahead_;
  const bool pushed_next_;  // whether what is trained is pushed in the next iteration
  const bool direct_;

  const RowSizes sizes_;

  // What a snapshot holds.
  StateIndex index_;
  HotRows hot_rows_;
  Replication replication_;
  RowLimit row_limit_;
  std::vector<std::unique_ptr<CacheMirror>> caches_;  // by worker
  CopyDirectory directory_;
  ReuseStatistics reuse_;
  TrainingHistory history_;
  std::uint32_t iteration_ = 0;
  std::uint64_t lookups_ = 0, hits_ = 0;  // of the last commit

  FlushQueue flush_queue_;
  std::vector<RowNumber> trained_;  // by the last iteration, where the queue is in use
  std::vector<OwedPushes> owed_;    // by worker; with `push_trained_`, of what the last iteration trained

  std::optional<Staleness> staleness_;
  std::vector<std::vector<std::pair<RowNumber, SlotIndex>>> given_;  // by worker, whose gradients go out next
  std::vector<Slots> spent_;                                         // by worker, copies that became too stale

  IdFinder finder_;
  PreparedBatch batch_;
  bool prepared_ = false;

  // Scratch space of `commit`.
  Trainers trainers_;
  std::vector<std::pair<BatchIndex, WorkerSet>> idle_;  // replicated rows, with those that train none of their samples
  Slots unpinned_;
  std::vector<RowNumber> forgotten_;
  std::vector<Slots> discarded_late_;  // by worker, slots of forgotten rows that the previous iteration trains
  std::vector<WorkerLists> lists_;     // by worker
  Replacement replacement_;
  std::vector<const SlotIndex*> next_slots_;  // by worker, the slot of the next row that it needs
  std::vector<NeedIndex> need_of_;            // by BatchIndex
};

}  // namespace esd
