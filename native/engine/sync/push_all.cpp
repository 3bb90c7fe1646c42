#include "engine/sync/push_all.h"

namespace esd {

// All rows are clean as they will be when the next plan has pushed them, so that scores of its batch take them so.
void PushAll::after(IterationPlans& plans) {
  owe_trained(plans);
  settle(state_.batch.row_numbers);
}

void PushAll::owe_trained(const IterationPlans& plans) {
  for (unsigned j = 0; j < state_.workers(); ++j) {
    const SlotIndex* slot = plans.arena.u32.data() + plans.workers[j].unique_slots.begin;
    for (const Need& need : state_.lists[j].needs) owe(j, state_.batch.row_numbers[need.row], *slot++);
  }
}

}  // namespace esd
