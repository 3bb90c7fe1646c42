#include "engine/sync/on_demand.h"

#include "engine/memory/sort_by_id.h"
#include "engine/rows/row_state.h"

namespace esd {

// What is owed besides what the batch needs comes among it, in the order of ids, as readers of plans expect.
void OnDemand::write_pushes(unsigned worker, WorkerPlan& plan, Arena& arena) {
  WorkerLists& lists = state_.lists[worker];
  OwedPushes& owed = owed_[worker];
  if (owed.empty()) {
    lists.write_pushes(state_.batch, state_.directory, arena, plan);
    if (direct_) lists.write_direct_pushes(state_.batch, state_.trainers, arena, plan);
    return;
  }
  for (const Payload payload : {kRow, kGradient}) {
    std::vector<TransferRow>& pushes = payload == kRow ? owed.rows : owed.gradients;
    for (const Timing timing : {kEarly, kLate}) {
      for (const auto [x, slot] : lists.pushes[payload][timing]) {
        const RowState& row = state_.batch.states[x];
        pushes.emplace_back(row, state_.sizes.of_row(row.id), state_.directory.contributors(row), slot,
                            state_.iteration);
      }
    }
  }
  SorterById<std::vector<TransferRow>> sorter;
  owed.sort(sorter);
  owed.write(arena, plan.update_rows, plan.update_gradients);
}

void OnDemand::moved(IterationPlans& plans) {
  if (!direct_) return;
  for (unsigned j = 0; j < state_.workers(); ++j) {
    state_.lists[j].write_direct_pulls(plans.arena, plans.workers[j]);
  }
}

void OnDemand::flush() {
  std::vector<RowNumber> numbers;
  for (unsigned j = 0; j < state_.workers(); ++j) {
    const CacheMirror& cache = *state_.caches[j];
    for (SlotIndex slot = 0; slot < cache.slots(); ++slot) {
      const RowNumber number = cache.copies[slot].row;
      if (number == kNoRow) continue;
      const RowState& row = state_.index[number];
      if (!row.holders.contains(j) || !unpushed(row, j)) continue;
      owe(j, number, slot);
      numbers.push_back(number);
    }
  }
  settle(numbers);
}

bool OnDemand::unpushed(const RowState& row, unsigned) const { return row.kind == kOwned || row.kind == kSplit; }

}  // namespace esd
