// Bounded staleness (HET): workers train on copies that may lack updates, and keep updates to themselves, up to bounds.
//
// All rows are clean here, and their holders are the workers whose copies are good enough: so scores of a batch take for
// a pull what a worker would pull. How far copies are behind is in staleness.h.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "engine/sync/stale_reads.h"
#include "engine/sync/staleness.h"
#include "engine/sync/sync.h"

namespace esd {

// Its figures are those of StaleReads: the reads of each bucket, the missing updates together, the most of one read.
class Bounded : public Sync {
 public:
  struct Options {
    StalenessBounds bounds;
    std::vector<bool> additive;  // by table, see Staleness; empty: no table is
  };

  // Throws std::invalid_argument when a bound is too large, or `additive` has another number of tables.
  Bounded(State& state, Options options)
      : Sync(state),
        staleness_(state.workers(), checked(options), checked(std::move(options.additive), state.sizes.tables())),
        given_(state.workers()),
        spent_(state.workers()) {}
  std::unique_ptr<Sync> clone() const override { return std::make_unique<Bounded>(*this); }

  Scoring scoring() const override { return {staleness_.pushes_at_once(), false}; }
  void begin(const std::int64_t* limits, IterationPlans& plans) override;
  void write_pushes(unsigned worker, WorkerPlan& plan, Arena& arena) override;
  void make_room(unsigned worker, Replacement& replacement, const Slots& late_slots, Arena& arena,
                 WorkerPlan& plan) override;
  void moved(IterationPlans& plans) override;
  void after(IterationPlans& plans) override;
  void flush() override;
  void forget(const std::vector<RowNumber>& rows) override;
  void release(RowNumber row) override { staleness_.release(row); }
  SavedSync save() const override;
  void restore(SavedSync&& saved) override;
  std::size_t memory_bytes() const override { return staleness_.memory_bytes(); }

 private:
  static StalenessBounds checked(const Options& options);
  static std::vector<bool> checked(std::vector<bool> additive, std::size_t tables);

  void give(unsigned worker, RowNumber number, SlotIndex slot);
  void pull_spent_copies();
  void list_given(unsigned worker);
  void name_evicted(const WorkerPlan& plan, Arena& arena);
  void name_copies(unsigned worker, const WorkerPlan& plan, Arena& arena);
  void judge_copies(RowNumber number, WorkerSet before);
  void outdate_spent();

  Staleness staleness_;
  std::vector<std::vector<std::pair<RowNumber, SlotIndex>>> given_;  // by worker, gradients that go out next
  std::vector<Slots> spent_;                                         // by worker, copies that became too stale
};

}  // namespace esd
