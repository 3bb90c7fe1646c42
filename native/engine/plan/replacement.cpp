#include "engine/plan/replacement.h"

#include <algorithm>
#include <iterator>

#include "engine/rows/copies.h"
#include "engine/rows/row_state.h"

namespace esd {

void Replacement::choose_victims(CacheMirror& cache, std::uint64_t room) {
  victims_.clear();
  if (state_.sizes.uniform()) return cache.policy->choose(static_cast<std::uint32_t>(room), victims_);
  for (std::uint64_t made = 0; made < room; made += state_.sizes.of_table(cache.copies[victims_.back()].table)) {
    cache.policy->choose(1, victims_);
  }
}

void Replacement::write_departures(Arena& arena, WorkerPlan& plan) {
  const DraftList<TransferRow>&drops = departures_[kDropped], &rows = departures_[kRowPushed],
        &gradients = departures_[kGradientPushed];
  plan.evict_rows = append_rows(arena, rows.begin(), rows.size());
  plan.evict_gradients = append_gradients(arena, gradients.begin(), gradients.size());
  plan.drops = append_rows(arena, drops.begin(), drops.size());
}

void Replacement::collect_vacant(const CacheMirror& cache, TableNumber table, const Slots& late_slots) {
  const auto append = [&](const auto& slots) {
    if (state_.sizes.uniform()) {
      vacant_.insert(vacant_.end(), slots.begin(), slots.end());
    } else {
      std::copy_if(slots.begin(), slots.end(), std::back_inserter(vacant_),
                   [&](SlotIndex slot) { return cache.copies[slot].table == table; });
    }
  };
  vacant_ = cache.vacant[table];
  append(freed_[kEarly]);
  early_vacant_ = vacant_.size();
  append(late_slots);
  append(freed_[kLate]);
}

// A slot belongs to one table. Those never used before are taken before vacant ones. Rows that the previous iteration
// does not train come first: they and the slots that are free early belong together. Where such slots run out, early
// pulls become late ones.
void Replacement::fill(CacheMirror& cache, const Slots& late_slots, WorkerLists& lists, SlotIndex* slots) {
  const Need* const needs = lists.needs.begin();
  const RowNumber* const numbers = state_.batch.row_numbers.data();
  const std::uint32_t stamp = use_stamp(state_.iteration);
  std::size_t ends[2] = {};  // by Timing, behind the missing rows of the table at hand, which come in its order
  for (TableNumber table = 0; table < state_.sizes.tables(); ++table) {
    const std::size_t begins[2] = {ends[kLate], ends[kEarly]};
    for (const Timing timing : {kLate, kEarly}) {
      const NeedList& missing = lists.missing[timing];
      ends[timing] = state_.sizes.uniform() ? missing.size() : begins[timing];
      while (ends[timing] < missing.size() &&
             state_.sizes.table_of(state_.batch.ids[needs[missing[ends[timing]]].row]) == table) {
        ++ends[timing];
      }
    }
    collect_vacant(cache, table, late_slots);
    const std::size_t early = ends[kEarly] - begins[kEarly], missing = early + ends[kLate] - begins[kLate];
    const std::size_t fresh = missing > vacant_.size() ? missing - vacant_.size() : 0;
    const SlotIndex first_fresh = cache.add_slots(table, static_cast<SlotIndex>(fresh));
    Copy* const copies = cache.copies.data();
    std::size_t filled = 0;
    for (const Timing timing : {kEarly, kLate}) {
      for (std::size_t at = begins[timing]; at < ends[timing]; ++at, ++filled) {
        const NeedIndex i = lists.missing[timing][at];
        const SlotIndex slot = filled < fresh ? first_fresh + static_cast<SlotIndex>(filled) : vacant_[filled - fresh];
        copies[slot] = {numbers[needs[i].row], stamp, 0, 0, 0, table};
        slots[i] = slot;
      }
    }
    const std::size_t taken = missing - fresh;
    cache.vacant[table].assign(vacant_.begin() + static_cast<std::ptrdiff_t>(taken), vacant_.end());
    for (const SlotIndex slot : cache.vacant[table]) cache.copies[slot].row = kNoRow;

    const std::size_t early_slots = fresh + early_vacant_;
    if (early > early_slots) lists.delay_pulls(begins[kEarly] + early_slots, ends[kEarly]);
  }
}

}  // namespace esd
