#include "engine/plan/replacement.h"

#include <cstddef>
#include <vector>

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

// Distributes what becomes vacant over the tables, where there are several, once for all of them.
void Replacement::part_freed(const CacheMirror& cache, const Slots& late_slots) {
  if (state_.sizes.uniform()) return;
  for (std::vector<Slots>& of_tables : freed_of_tables_) {
    of_tables.resize(state_.sizes.tables());
    for (Slots& slots : of_tables) slots.clear();
  }
  const auto part = [&](const auto& slots, Timing timing) {
    for (const SlotIndex slot : slots) freed_of_tables_[timing][cache.copies[slot].table].push_back(slot);
  };
  part(freed_[kEarly], kEarly);
  part(late_slots, kLate);
  part(freed_[kLate], kLate);
}

void Replacement::collect_vacant(const CacheMirror& cache, TableNumber table, const Slots& late_slots) {
  const auto append = [&](const auto& slots) { vacant_.insert(vacant_.end(), slots.begin(), slots.end()); };
  vacant_ = cache.vacant[table];
  const bool uniform = state_.sizes.uniform();
  uniform ? append(freed_[kEarly]) : append(freed_of_tables_[kEarly][table]);
  early_vacant_ = vacant_.size();
  if (!uniform) return append(freed_of_tables_[kLate][table]);
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
  part_freed(cache, late_slots);
  for (std::size_t t = 0; t < state_.sizes.tables(); ++t) {
    const auto table = static_cast<TableNumber>(t);
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
