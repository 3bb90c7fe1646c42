#include "engine/sync/uncached.h"

#include <utility>

#include "engine/rows/row_state.h"

namespace esd {

void Uncached::after(IterationPlans& plans) {
  owe_trained(plans);
  for (unsigned j = 0; j < state_.workers(); ++j) {
    const Span slots = plans.workers[j].unique_slots;
    state_.caches[j]->policy->outdate(plans.arena.u32.data() + slots.begin, slots.size, state_.iteration);
  }
  for (const RowNumber number : state_.batch.row_numbers) hold_nothing(number);
}

// Another way may have left copies that are up to date.
void Uncached::restore(SavedSync&& saved) {
  PushAll::restore(std::move(saved));
  for (RowNumber number = 0; number < state_.index.size(); ++number) {
    if (state_.index[number].location != kUnused) hold_nothing(number);
  }
}

void Uncached::hold_nothing(RowNumber number) {
  RowState& row = state_.index[number];
  row.holders = {};
  row.kind = kClean;
  state_.directory.tidy(row);
}

}  // namespace esd
