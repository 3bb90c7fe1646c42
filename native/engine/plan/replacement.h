// Cache replacement at one worker: which copies leave, and which slots the rows take that come.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/batch/row_sizes.h"
#include "engine/cache/cache_mirror.h"
#include "engine/memory/draft_list.h"
#include "engine/plan/plan.h"
#include "engine/plan/worker_lists.h"
#include "engine/rows/copy_directory.h"
#include "engine/rows/state_index.h"

namespace esd {

class Replacement {
 public:
  Replacement(StateIndex& index, PreparedBatch& batch, CopyDirectory& directory, const RowSizes& sizes)
      : index_(index), batch_(batch), directory_(directory), sizes_(sizes) {}

  // Evicts as many copies as the turn's missing rows need room, and gives these rows slots. `late_slots` are vacant, too,
  // when the previous iteration ends.
  void run(unsigned worker, std::uint32_t iteration, CacheMirror& cache, const Slots& late_slots, WorkerTurn& turn,
           Arena& arena, WorkerPlan& plan);

 private:
  void choose_victims(CacheMirror& cache, std::uint64_t room);
  void evict(unsigned worker, std::uint32_t iteration, CacheMirror& cache, Arena& arena, WorkerPlan& plan);
  void place(std::uint32_t iteration, CacheMirror& cache, WorkerTurn& turn, std::uint32_t* slots);
  void prefetch(const CacheMirror& cache, std::size_t victim);
  RowState& state_of(std::uint32_t row);

  StateIndex& index_;
  PreparedBatch& batch_;
  CopyDirectory& directory_;
  const RowSizes& sizes_;

  // Of the worker at hand; kept for their memory only.
  Slots victims_;
  DraftList<Transfer> rows_, gradients_, drops_;
  DraftList<std::uint32_t> freed_[2];  // slots of victims; [1] of rows that the previous iteration does not train
  Slots vacant_;  // free slots; from `early_vacant_` on they are free only when the previous iteration ends
  std::size_t early_vacant_ = 0;
};

}  // namespace esd
