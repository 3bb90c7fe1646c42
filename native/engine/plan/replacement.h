// Cache replacement at one worker: which copies leave, and which slots the missing rows take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/cache/cache_mirror.h"
#include "engine/memory/draft_list.h"
#include "engine/plan/plan.h"
#include "engine/plan/state.h"
#include "engine/plan/worker_lists.h"
#include "engine/rows/copies.h"
#include "engine/rows/index_types.h"
#include "engine/rows/row_state.h"

namespace esd {

// How a copy leaves its cache.
enum Departure : std::uint32_t {
  kDropped,         // it owes nothing
  kRowPushed,       // the parameter server lacks the row
  kGradientPushed,  // the parameter server lacks the copy's partial gradient
};

// The departure of a copy that owes what its row's state says. An outdated copy owes nothing, whatever the state: others
// have trained the row since, or will now.
inline Departure departure_of(const Copy& copy, const RowState& row) {
  const bool owes = !copy.outdated & (row.kind != kClean), split = owes & (row.kind == kSplit);
  return static_cast<Departure>(owes + split);
}

class Replacement {
 public:
  explicit Replacement(State& state) : state_(state) {}

  // Evicts as many copies as the worker's missing rows need room, and gives these rows slots. `late_slots` become
  // vacant, too, when the previous iteration ends. `departure(slot, copy, row)` returns the Departure of a copy.
  template <typename DepartureOf>
  void run(unsigned worker, const Slots& late_slots, Arena& arena, WorkerPlan& plan, DepartureOf departure) {
    CacheMirror& cache = *state_.caches[worker];
    WorkerLists& lists = state_.lists[worker];
    const std::uint64_t room =
        lists.size_of(lists.missing[kEarly], state_.batch) + lists.size_of(lists.missing[kLate], state_.batch);
    choose_victims(cache, room > cache.free() ? room - cache.free() : 0);
    evict(worker, cache, departure);
    write_departures(arena, plan);
    cache.filled += room;
    fill(cache, late_slots, lists, arena.u32.data() + plan.unique_slots.begin);
  }

 private:
  void choose_victims(CacheMirror& cache, std::uint64_t room);
  template <typename DepartureOf>
  void evict(unsigned worker, CacheMirror& cache, DepartureOf departure_of_copy);
  void write_departures(Arena& arena, WorkerPlan& plan);
  void fill(CacheMirror& cache, const Slots& late_slots, WorkerLists& lists, SlotIndex* slots);
  void part_freed(const CacheMirror& cache, const Slots& late_slots);
  void collect_vacant(const CacheMirror& cache, TableNumber table, const Slots& late_slots);
  void prefetch(const State::RowStates& rows, const Copy* copies, const SlotIndex* victim, std::size_t left) const;

  State& state_;

  // Scratch space for the worker at hand.
  Slots victims_;
  DraftList<TransferRow> departures_[3];   // by Departure
  DraftList<SlotIndex> freed_[2];          // slots of victims, by the Timing of their rows
  std::vector<Slots> freed_of_tables_[2];  // these and other vacated slots, by Timing and table; none with one table
  Slots vacant_;                           // free slots of the table at hand; from `early_vacant_` on, free when the
                                           // previous iteration ends
  std::size_t early_vacant_ = 0;
};

// Fetches ahead of a victim, of which and of whose followers `left` are there, its row in the state index, nearer the row's
// state if that is in the batch, then its record. Always inlined, as every function that only prefetches: gcc takes it for
// one without any effect and drops the call.
[[gnu::always_inline]] inline void Replacement::prefetch(const State::RowStates& rows, const Copy* copies,
                                                         const SlotIndex* victim, std::size_t left) const {
  constexpr std::size_t kRowAhead = 32, kStateAhead = 20, kRecordAhead = 10;
  const auto row_of = [&](std::size_t ahead) { return copies[victim[ahead]].row; };
  if (kRowAhead < left) rows.prefetch(row_of(kRowAhead));
  if (kStateAhead < left) __builtin_prefetch(&rows[row_of(kStateAhead)], 1);
  if (kRecordAhead < left) state_.directory.prefetch(rows[row_of(kRecordAhead)]);
}

// How a copy leaves, and whether its slot is free early, are no branches, since they can hardly be predicted.
template <typename DepartureOf>
void Replacement::evict(unsigned worker, CacheMirror& cache, DepartureOf departure_of_copy) {
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
  const State::RowStates rows = state_.row_states();
  const Copy* const copies = cache.copies.data();
  const std::uint32_t* const sizes = state_.sizes.of_tables().data();
  const std::uint32_t iteration = state_.iteration;
  std::uint64_t room = 0;
  const SlotIndex* victim = victims_.data();
  for (std::size_t left = count; left > 0; --left, ++victim) {
    prefetch(rows, copies, victim, left);
    const SlotIndex slot = *victim;
    const Copy& copy = copies[slot];
    RowState& row = rows[copy.row];
    const Departure departure = departure_of_copy(slot, copy, row);
    const TransferRow transfer(row, sizes[copy.table], state_.directory.contributors(row), slot, iteration);
    *departure_ends[departure]++ = transfer;
    *freed_ends[transfer.timing]++ = slot;
    room += transfer.size;
    row.holders.remove(worker);
    if (row.holders.empty()) row.kind = kClean;
    state_.directory.remove(row, worker);
    if (row.location == kNowhere) state_.uncached.add(copy.row, row, iteration);
  }
  cache.filled -= room;
  for (const Departure departure : {kDropped, kRowPushed, kGradientPushed}) {
    departures_[departure].end_at(departure_ends[departure]);
  }
  for (const Timing timing : {kLate, kEarly}) freed_[timing].end_at(freed_ends[timing]);
}

}  // namespace esd
