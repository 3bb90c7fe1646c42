// Cache replacement at one worker: which copies leave, and which slots the missing rows take.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/batch/prepared_batch.h"
#include "engine/batch/row_sizes.h"
#include "engine/cache/cache_mirror.h"
#include "engine/memory/draft_list.h"
#include "engine/plan/plan.h"
#include "engine/plan/staleness.h"
#include "engine/plan/worker_lists.h"
#include "engine/rows/copies.h"
#include "engine/rows/copy_directory.h"
#include "engine/rows/index_types.h"
#include "engine/rows/row_state.h"
#include "engine/rows/state_index.h"

namespace esd {

class Replacement {
 public:
  // `staleness` is null where it is not bounded, but forbidden.
  Replacement(StateIndex& index, PreparedBatch& batch, CopyDirectory& directory, const RowSizes& sizes,
              Staleness* staleness)
      : index_(index), batch_(batch), directory_(directory), sizes_(sizes), staleness_(staleness) {}

  // Evicts as many copies as the worker's missing rows need room, and gives these rows slots. `late_slots` become
  // vacant, too, when the previous iteration ends.
  void run(unsigned worker, std::uint32_t iteration, CacheMirror& cache, const Slots& late_slots, WorkerLists& lists,
           Arena& arena, WorkerPlan& plan);

  // The row's state, which is in the batch or in the index. Which of them is no branch, since it can hardly be predicted.
  RowState& state_of(RowNumber number) {
    RowState& row = index_[number];
    const bool in_batch = row.location == kInBatch;
    RowState* const states[] = {&row, batch_.states.data() + (row.slot & -std::uint32_t{in_batch})};
    return *states[in_batch];
  }

 private:
  void choose_victims(CacheMirror& cache, std::uint64_t room);
  void evict(unsigned worker, std::uint32_t iteration, CacheMirror& cache, Arena& arena, WorkerPlan& plan);
  void fill(std::uint32_t iteration, CacheMirror& cache, const Slots& late_slots, WorkerLists& lists, SlotIndex* slots);
  void collect_vacant(const CacheMirror& cache, TableNumber table, const Slots& late_slots);
  void prefetch(const CacheMirror& cache, std::size_t victim);

  // How a copy leaves its cache.
  enum Departure : std::uint32_t {
    kDropped,         // it owes nothing
    kRowPushed,       // the parameter server lacks the row
    kGradientPushed,  // the parameter server lacks the copy's partial gradient
  };
  static Departure departure_of(const Copy& copy, const RowState& row);
  Departure bounded_departure(unsigned worker, SlotIndex slot, const Copy& copy, const RowState& row);

  StateIndex& index_;
  PreparedBatch& batch_;
  CopyDirectory& directory_;
  const RowSizes& sizes_;
  Staleness* const staleness_;

  // Scratch space for the worker at hand.
  Slots victims_;
  DraftList<TransferRow> departures_[3];  // by Departure
  DraftList<SlotIndex> freed_[2];         // slots of victims, by the Timing of their rows
  Slots vacant_;                          // free slots of the table at hand; from `early_vacant_` on, free when the
                                          // previous iteration ends
  std::size_t early_vacant_ = 0;
};

}  // namespace esd
