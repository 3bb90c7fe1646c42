#include "engine/sync/sync.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "engine/memory/sort_by_id.h"
#include "engine/rows/row_state.h"

namespace esd {

void Sync::look_ahead(const std::uint64_t*, std::size_t, std::uint32_t) {
  throw std::logic_error("this engine does not flush ahead");
}

void Sync::make_room(unsigned worker, Replacement& replacement, const Slots& late_slots, Arena& arena,
                     WorkerPlan& plan) {
  replacement.run(worker, late_slots, arena, plan,
                  [](SlotIndex, const Copy& copy, const RowState& row) { return departure_of(copy, row); });
}

void Sync::use(CacheMirror& cache, const WorkerPlan& plan, const Arena& arena) {
  cache.policy->use(arena.u32.data() + plan.unique_slots.begin, plan.unique_slots.size);
}

void Sync::forget(const std::vector<RowNumber>& rows) {
  std::vector<std::uint64_t> leaving;
  leaving.reserve(rows.size());
  for (const RowNumber number : rows) leaving.push_back(state_.index[number].id);
  std::sort(leaving.begin(), leaving.end());
  for (OwedPushes& owed : owed_) owed.forget(leaving);
}

SavedSync Sync::save() const {
  for (const OwedPushes& owed : owed_) {
    if (!owed.empty()) throw std::logic_error("rows that were trained are not pushed; call flush before snapshot");
  }
  return {};
}

// Rows that were pinned under another way, or by other workers, are clean: a flush came before the snapshot.
void Sync::restore(SavedSync&&) {
  owed_.assign(state_.workers(), {});
  for (RowNumber number = 0; number < state_.index.size(); ++number) {
    RowState& row = state_.index[number];
    if (row.location == kUnused || !row.pinned) continue;
    row.pinned = 0;
    unpin(number);
  }
}

void Sync::outdate_owed(unsigned worker) {
  SorterById<std::vector<TransferRow>> sorter;
  owed_[worker].sort(sorter);
  Slots outdated;
  for (const TransferRow& gradient : owed_[worker].gradients) outdated.push_back(gradient.slot);
  state_.caches[worker]->policy->outdate(outdated.data(), outdated.size(), state_.iteration);
}

void Sync::settle(const std::vector<RowNumber>& numbers) {
  for (unsigned j = 0; j < state_.workers(); ++j) outdate_owed(j);
  for (const RowNumber number : numbers) {
    RowState& row = state_.index[number];
    if (row.kind == kOwned) row.kind = kClean;
    if (row.kind == kSplit) row.kind = kSettled;
    state_.directory.tidy(row);
  }
}

void Sync::unpin(RowNumber number) {
  const RowState& row = state_.index[number];
  row.holders.for_each([&](unsigned j) {
    CacheMirror& cache = *state_.caches[j];
    const SlotIndex slot = state_.directory.find(row).slot(j);
    cache.restamp(&slot, 1, state_.iteration - 1);
    cache.policy->use(&slot, 1);
  });
}

}  // namespace esd
