// Rows leave the table, with their optimizer state: those that no iteration has trained for their time to live, and those
// that a full table has no room for. Their copies leave all caches without a push.
#include <cstddef>
#include <utility>
#include <vector>

#include "engine/cache/cache_mirror.h"
#include "engine/engine.h"
#include "engine/plan/plan.h"
#include "engine/rows/row_state.h"

namespace esd {

void Engine::forget_rows(IterationPlans& plans) {
  discarded_late_.assign(workers(), {});
  if (!row_limit_.active() && !row_ttl_.active()) return;
  plans.forgotten = reserve_column(plans.arena.u64, 0);
  std::vector<std::vector<TransferRow>> discards(workers());
  row_ttl_.expire(state_.index, state_.batch, state_.iteration, forgotten_, lives_);
  forget_chosen(plans, discards);
  plans.expired = forgotten_.size();
  row_limit_.left(forgotten_.size());
  row_limit_.make_room(state_.index, state_.batch, state_.iteration, forgotten_, lives_);
  forget_chosen(plans, discards);
  plans.forgotten_below = first_version(lives_.present());
  for (unsigned j = 0; j < workers(); ++j) {
    plans.workers[j].discards = append_rows(plans.arena, discards[j].data(), discards[j].size());
  }
}

// The rows in `forgotten_` leave the state index and all caches. Slots that are in use until the previous iteration ends go
// to `discarded_late_`, others are vacant.
void Engine::forget_chosen(IterationPlans& plans, std::vector<std::vector<TransferRow>>& discards) {
  sync_->forget(forgotten_);
  for (const RowNumber number : forgotten_) {
    plans.arena.u64.push_back(state_.index[number].id);
    state_.directory.cached(state_.index[number]).for_each([&](unsigned worker) {
      const TransferRow discard = discard_copy(number, worker);
      CacheMirror& cache = *state_.caches[worker];
      const TableNumber table = cache.copies[discard.slot].table;
      (discard.timing == kEarly ? cache.vacant[table] : discarded_late_[worker]).push_back(discard.slot);
      discards[worker].push_back(discard);
    });
    state_.hot_rows.forget(number);
    history_.forget(number);
    state_.index.forget(number);
  }
  plans.forgotten.size += forgotten_.size();
}

void Engine::begin_lives() {
  if (lives_.present() == 0) return;
  for (RowState& row : state_.batch.states) {
    if (row.version == 0) row.life = lives_.present();
  }
}

TransferRow Engine::discard_copy(RowNumber number, unsigned worker) {
  RowState& row = state_.index[number];
  CacheMirror& cache = *state_.caches[worker];
  const SlotIndex slot = state_.directory.find(row).slot(worker);
  const TransferRow discard(row, state_.sizes.of_row(row.id), WorkerSet{}, slot, state_.iteration);
  cache.copies[slot].row = kNoRow;
  cache.copies[slot].stamp = kNoStamp;  // so that no record in the policy's queues names it any more
  cache.filled -= discard.size;
  row.holders.remove(worker);
  state_.directory.remove(row, worker);
  return discard;
}

}  // namespace esd
