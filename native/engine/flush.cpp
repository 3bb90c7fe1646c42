// Everything the parameter server lacks, pushed by whoever has it.
#include <utility>

#include "engine/engine.h"
#include "engine/memory/sort_by_id.h"

namespace esd {

FlushPlans Engine::flush(Arena&& arena) {
  FlushPlans plans;
  plans.arena = std::move(arena);
  plans.iteration = iteration_;
  const bool prepared = prepared_;
  check_in();
  plans.workers.resize(workers());
  std::vector<std::uint32_t> flushed;
  SorterById<std::vector<Transfer>> sorter;
  for (unsigned j = 0; j < workers(); ++j) {
    CacheMirror& cache = *caches_[j];
    std::vector<Transfer> rows, gradients;
    for (std::uint32_t slot = 0; slot < cache.slots(); ++slot) {
      if (cache.copies[slot].row == kNone) continue;
      const RowState& row = index_[cache.copies[slot].row];
      if (!(row.mask & worker_bit(j))) continue;
      if (row.kind != kOwned && row.kind != kSplit) continue;
      const WorkerMask contributors = directory_.contributors(row);
      (row.kind == kSplit ? gradients : rows)
          .emplace_back(row, sizes_[cache.copies[slot].row], contributors, slot, iteration_);
      flushed.push_back(cache.copies[slot].row);
    }
    sorter.sort(rows);
    sorter.sort(gradients);
    Slots outdated;
    for (const Transfer& gradient : gradients) outdated.push_back(gradient.slot);
    cache.policy->outdate(outdated.data(), outdated.size(), iteration_);
    plans.workers[j].rows = append_rows(plans.arena, rows.data(), rows.size());
    plans.workers[j].gradients = append_gradients(plans.arena, gradients.data(), gradients.size());
  }
  for (const std::uint32_t number : flushed) {
    RowState& row = index_[number];
    if (row.kind == kOwned) row.kind = kClean;
    if (row.kind == kSplit) row.kind = kSettled;
    directory_.tidy(row);
  }
  if (prepared) check_out();
  return plans;
}

}  // namespace esd
