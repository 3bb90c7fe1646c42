#include "engine/plan/replacement.h"

#include <algorithm>
#include <iterator>

#include "engine/rows/copies.h"
#include "engine/rows/row_state.h"

namespace esd {

void Replacement::run(unsigned worker, std::uint32_t iteration, CacheMirror& cache, const Slots& late_slots,
                      WorkerLists& lists, Arena& arena, WorkerPlan& plan) {
  const std::uint64_t room = lists.size_of(lists.missing[kEarly], batch_) + lists.size_of(lists.missing[kLate], batch_);
  choose_victims(cache, room > cache.free() ? room - cache.free() : 0);
  evict(worker, iteration, cache, arena, plan);
  cache.filled += room;
  fill(iteration, cache, late_slots, lists, arena.u32.data() + plan.unique_slots.begin);
}

void Replacement::choose_victims(CacheMirror& cache, std::uint64_t room) {
  victims_.clear();
  if (sizes_.uniform()) return cache.policy->choose(static_cast<std::uint32_t>(room), victims_);
  for (std::uint64_t made = 0; made < room; made += sizes_.of_table(cache.copies[victims_.back()].table)) {
    cache.policy->choose(1, victims_);
  }
}

// Fetches ahead of a victim its row in the state index, nearer the row's state if that is in the batch, then its
// record. Always inlined, as every function that only prefetches: gcc takes it for one without any effect and drops the
// call.
[[gnu::always_inline]] inline void Replacement::prefetch(const CacheMirror& cache, std::size_t victim) {
  constexpr std::size_t kRowAhead = 32, kStateAhead = 20, kRecordAhead = 10;
  const auto row_of = [&](std::size_t at) { return cache.copies[victims_[at]].row; };
  if (victim + kRowAhead < victims_.size()) index_.prefetch(row_of(victim + kRowAhead));
  if (victim + kStateAhead < victims_.size()) __builtin_prefetch(&state_of(row_of(victim + kStateAhead)), 1);
  if (victim + kRecordAhead < victims_.size()) directory_.prefetch(state_of(row_of(victim + kRecordAhead)));
}

// An outdated copy owes nothing, whatever the row's state: others have trained the row since, or will now.
inline Replacement::Departure Replacement::departure_of(const Copy& copy, const RowState& row) {
  const bool owes = !copy.outdated & (row.kind != kClean), split = owes & (row.kind == kSplit);
  return static_cast<Departure>(owes + split);
}

// With bounded staleness a copy owes the updates that its worker has kept to itself.
Replacement::Departure Replacement::bounded_departure(unsigned worker, SlotIndex slot, const Copy& copy,
                                                      const RowState& row) {
  if (!staleness_->unpushed(worker, slot)) return kDropped;
  staleness_->push(worker, slot, copy.row, copy.table, row.last_use);
  return kGradientPushed;
}

// How a copy leaves, and whether its slot is free early, are no branches, since they can hardly be predicted.
void Replacement::evict(unsigned worker, std::uint32_t iteration, CacheMirror& cache, Arena& arena, WorkerPlan& plan) {
  const std::size_t count = victims_.size();
  TransferRow* departure_ends[3];
  for (const Departure departure : {kDropped, kRowPushed, kGradientPushed}) {
    departures_[departure].clear();
    departure_ends[departure] = departures_[departure].draft(count);
  }
  SlotIndex* freed_ends[2];
  for (const Timing timing : {kLate, kEarly}) {
    freed_[timing].clear();
    freed_ends[timing] = freed_[timing].draft(count);
  }
  for (std::size_t i = 0; i < count; ++i) {
    prefetch(cache, i);
    const SlotIndex slot = victims_[i];
    const Copy& copy = cache.copies[slot];
    RowState& row = state_of(copy.row);
    const Departure departure =
        staleness_ == nullptr ? departure_of(copy, row) : bounded_departure(worker, slot, copy, row);
    const TransferRow transfer(row, sizes_.of_table(copy.table), directory_.contributors(row), slot, iteration);
    *departure_ends[departure]++ = transfer;
    *freed_ends[transfer.timing]++ = slot;
    cache.filled -= transfer.size;
    row.holders.remove(worker);
    if (row.holders.empty()) row.kind = kClean;
    directory_.remove(row, worker);
  }
  for (const Departure departure : {kDropped, kRowPushed, kGradientPushed}) {
    departures_[departure].end_at(departure_ends[departure]);
  }
  for (const Timing timing : {kLate, kEarly}) freed_[timing].end_at(freed_ends[timing]);
  const DraftList<TransferRow>&drops = departures_[kDropped], &rows = departures_[kRowPushed],
        &gradients = departures_[kGradientPushed];
  plan.evict_rows = append_rows(arena, rows.begin(), rows.size());
  plan.evict_gradients = append_gradients(arena, gradients.begin(), gradients.size());
  plan.drops = append_rows(arena, drops.begin(), drops.size());
}

void Replacement::collect_vacant(const CacheMirror& cache, TableNumber table, const Slots& late_slots) {
  const auto append = [&](const auto& slots) {
    if (sizes_.uniform()) {
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
void Replacement::fill(std::uint32_t iteration, CacheMirror& cache, const Slots& late_slots, WorkerLists& lists,
                       SlotIndex* slots) {
  const auto row_of = [&](NeedIndex i) { return lists.needs[i].row; };
  std::size_t ends[2] = {};  // by Timing, behind the missing rows of the table at hand, which come in its order
  for (TableNumber table = 0; table < sizes_.tables(); ++table) {
    const std::size_t begins[2] = {ends[kLate], ends[kEarly]};
    for (const Timing timing : {kLate, kEarly}) {
      const NeedList& missing = lists.missing[timing];
      ends[timing] = sizes_.uniform() ? missing.size() : begins[timing];
      while (ends[timing] < missing.size() && sizes_.table_of(batch_.ids[row_of(missing[ends[timing]])]) == table) {
        ++ends[timing];
      }
    }
    collect_vacant(cache, table, late_slots);
    const std::size_t early = ends[kEarly] - begins[kEarly], missing = early + ends[kLate] - begins[kLate];
    const std::size_t fresh = missing > vacant_.size() ? missing - vacant_.size() : 0;
    std::size_t filled = 0;
    for (const Timing timing : {kEarly, kLate}) {
      for (std::size_t at = begins[timing]; at < ends[timing]; ++at, ++filled) {
        const NeedIndex i = lists.missing[timing][at];
        const SlotIndex slot = filled < fresh ? cache.add_slot(table) : vacant_[filled - fresh];
        cache.copies[slot] = {batch_.row_numbers[row_of(i)], use_stamp(iteration), 0, 0, 0, table};
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
