// The dispatch engine: the state of all rows and the mirrors of all caches of one job (docs/semantics.md).
//
// An iteration is `prepare`, a decision on what `costs`, `affinity`, `room_needed` or `joint` say of the batch, and
// `commit`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/batch/prepared_batch.h"
#include "engine/batch/preview.h"
#include "engine/batch/row_limit.h"
#include "engine/batch/row_sizes.h"
#include "engine/batch/row_ttl.h"
#include "engine/batch/scores.h"
#include "engine/batch/training_history.h"
#include "engine/cache/cache_mirror.h"
#include "engine/joint/reuse.h"
#include "engine/joint/search.h"
#include "engine/plan/plan.h"
#include "engine/plan/replacement.h"
#include "engine/plan/state.h"
#include "engine/plan/worker_lists.h"
#include "engine/rows/index_types.h"
#include "engine/rows/lives.h"
#include "engine/rows/state_index.h"
#include "engine/rows/trainings_memory.h"
#include "engine/sync/sync.h"

namespace esd {

// The rows that one iteration trains at some worker do not fit its cache.
struct CacheTooSmall : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// What an engine is made of, besides its way to synchronise.
struct EngineOptions {
  std::vector<std::uint32_t> cache_sizes;  // by worker, the room of its cache in units of row size
  std::string policy;                      // of cache replacement, see make_policy
  std::vector<std::uint32_t> table_sizes;  // of the tables' rows, see RowSizes
  std::uint64_t max_rows = 0;              // see RowLimit
  std::vector<std::uint32_t> row_ttls;     // by table, see RowTtl
  RowSizes::Shares gradient_shares, value_shares;
  std::uint32_t window = 0;    // iterations after which what a plan pushes is durable; 0: the engine knows all rows
  std::size_t spare_rows = 0;  // rows that it knows although no worker caches them
};

class Engine {
 public:
  // Throws std::invalid_argument when an option is out of range.
  Engine(EngineOptions options, const Way& way);
  Engine(const Engine&) = delete;  // members refer to others
  Engine& operator=(const Engine&) = delete;

  // Looks a batch up, in place of one that was prepared and not committed. Engines that prepare the same batch can share
  // what was found out about its ids.
  void prepare(const SampleIds& ids);
  void prepare(const BatchIds& ids);
  const PreparedBatch& batch() const;  // throws std::logic_error when none is prepared

  // Scores of the prepared batch, as batch/scores.h says. Throw std::invalid_argument when link costs or fields are out
  // of range.
  void costs(const std::int32_t* link_costs, std::int32_t* out) const;
  void affinity(AtHand at_hand, std::int32_t* out) const;
  void affinity(AtHand at_hand, const std::vector<std::uint32_t>& fields, std::int32_t* out) const;  // some fields only
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
  // `limits` [workers] are the rows that each worker may push before they are needed, where the way does that.
  IterationPlans commit(const std::int32_t* assignment, Arena&& arena, const std::int64_t* limits = nullptr);

  // Announces which ids a later iteration reads. Throws std::logic_error when the way has no use for that,
  // std::invalid_argument when the iteration is too far ahead.
  void look_ahead(const std::uint64_t* ids, std::size_t count, std::uint32_t iteration);

  // Makes the workers push everything that the parameter server lacks. All rows are clean afterwards.
  FlushPlans flush();

  // The whole state as bytes, and back (snapshot.cpp). Where `warm` is false, the caches are left empty. A prepared
  // batch is no part of a snapshot, and forgotten by `restore`. Where the way keeps pushes back, `snapshot` throws
  // std::logic_error until a flush. `room(size)` returns the place of the bytes.
  using Room = std::function<char*(std::size_t)>;
  void snapshot(const Room& room);
  std::string snapshot();
  void restore(const char* data, std::size_t size, bool warm);

  // All that a commit changes, at any time, and back: what the way keeps back is part of it. A prepared batch is not.
  struct Savepoint {
    std::string state;  // a snapshot
    std::unique_ptr<Sync> sync;
  };
  Savepoint savepoint();
  void roll_back(const Savepoint& before);

  unsigned workers() const { return state_.workers(); }
  std::uint32_t iteration() const { return state_.iteration; }
  std::size_t distinct() const { return prepared_ ? state_.batch.distinct() : 0; }
  std::uint64_t lookups() const { return lookups_; }
  std::uint64_t hits() const { return hits_; }
  const StateIndex& index() const { return state_.index; }
  const CacheMirror& cache(unsigned worker) const { return *state_.caches[worker]; }
  std::size_t cache_bytes() const;
  std::size_t memory_bytes() const;

 private:
  void check_link_costs(const std::int32_t* link_costs) const;
  void check_limits(const JointRequest& request) const;
  void check_sites(const JointRequest& request) const;

  void look_up();

  void abandon_batch();
  void recall_trainings();

  // Move the states of the batch's rows out of the state index, and back.
  void check_out();
  void check_in();

  // The steps of `commit`.
  void check_room() const;
  IterationPlans empty_plans(Arena&& arena) const;
  void forget_rows(IterationPlans& plans);
  void forget_chosen(IterationPlans& plans, std::vector<std::vector<TransferRow>>& discards);
  void begin_lives();
  TransferRow discard_copy(RowNumber number, unsigned worker);
  void make_room(unsigned worker, IterationPlans& plans);
  void train(const IterationPlans& plans);
  void count_hits(const IterationPlans& plans);
  void release_rows();
  void choose_hot_rows();
  void place_slots(IterationPlans& plans) const;
  void place_slots(FlushPlans& plans) const;

  std::string save(const SavedSync& saved);
  void save(const SavedSync& saved, const Room& room);
  SavedSync load(const char* data, std::size_t size, bool warm);
  void load_uncached(std::vector<UncachedRow>&& saved, bool complete);

  // What a snapshot holds.
  State state_;
  RowLimit row_limit_;
  RowTtl row_ttl_;
  Lives lives_;
  TrainingsMemory memory_;
  ReuseStatistics reuse_;
  TrainingHistory history_;
  std::uint64_t lookups_ = 0, hits_ = 0;  // of the last commit
  std::unique_ptr<Sync> sync_;

  const std::uint32_t window_;
  const std::size_t spare_rows_;
  IdFinder finder_;
  bool prepared_ = false;

  // Scratch space of `commit`.
  std::vector<RowNumber> forgotten_;
  std::vector<Slots> discarded_late_;  // by worker, slots of forgotten rows that the previous iteration trains
  Replacement replacement_;
  std::vector<const SlotIndex*> next_slots_;  // by worker, the slot of the next row that it needs
  std::vector<NeedIndex> need_of_;            // by BatchIndex
};

}  // namespace esd
