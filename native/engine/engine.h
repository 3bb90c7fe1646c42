// The dispatch engine: state of all rows and all caches of one job (docs/semantics.md).
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/batch/prepared_batch.h"
#include "engine/batch/row_limit.h"
#include "engine/batch/row_sizes.h"
#include "engine/cache/cache_mirror.h"
#include "engine/joint/search.h"
#include "engine/plan/plan.h"
#include "engine/rows/copy_directory.h"
#include "engine/rows/state_index.h"

namespace esd {

// One iteration's rows of some worker do not fit its cache.
struct CacheTooSmall : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Commit;

class Engine {
 public:
  // `cache_sizes`: room of each cache, in units of row size. `field_sizes`: see RowSizes. `max_rows`: see RowLimit.
  Engine(std::vector<std::uint32_t> cache_sizes, std::string policy, std::vector<std::uint32_t> field_sizes = {},
         std::uint64_t max_rows = 0);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();

  void prepare(const std::uint64_t* ids, std::size_t samples, std::size_t fields);
  const PreparedBatch& batch() const;  // throws std::logic_error when none is prepared
  void costs(const std::int32_t* link_costs, std::int32_t* out) const;
  void affinity(std::int32_t* out) const;
  void affinity(const std::vector<std::uint32_t>& fields, std::int32_t* out) const;  // over some fields only

  // `request.link_costs` and `request.capacities` hold for the workers of this engine.
  JointResult joint(const JointRequest& request) const;

  void room_needed(std::int32_t* out) const;

  IterationPlans commit(const std::int32_t* assignment, Arena&& arena);
  FlushPlans flush(Arena&& arena);

  std::string snapshot();
  void restore(const char* data, std::size_t size, bool warm);  // cold: caches are left empty

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
  friend class Commit;

  std::vector<std::unique_ptr<CacheMirror>> make_caches() const;
  void check_link_costs(const std::int32_t* link_costs) const;
  void check_limits(const JointRequest& request) const;
  void check_out();  // the rows of the batch
  void check_in();

  // Makes room for the rows that the prepared batch brings. Slots that are in use until the running iteration ends go
  // to `late_slots` of their worker, others to its cache's vacant ones.
  void forget(IterationPlans& plans, std::vector<Slots>& late_slots);
  Transfer discard_copy(std::uint32_t number, unsigned worker);

  std::vector<std::uint32_t> cache_sizes_;
  std::string policy_;
  StateIndex index_;
  RowSizes sizes_;
  HotRows hot_rows_;
  RowLimit row_limit_;
  std::vector<std::uint32_t> forgotten_;              // by the last commit; kept for its memory only
  std::vector<std::unique_ptr<CacheMirror>> caches_;  // by worker
  CopyDirectory directory_;
  ReuseStatistics reuse_;
  BatchPreparer preparer_;
  PreparedBatch batch_;
  bool prepared_ = false;
  std::uint32_t iteration_ = 0;
  std::uint64_t lookups_ = 0, hits_ = 0;  // of the last commit
  const std::unique_ptr<Commit> commit_;
};

}  // namespace esd
