#include "engine/plan/replacement.h"

namespace esd {

void Replacement::run(unsigned worker, std::uint32_t iteration, CacheMirror& cache, const Slots& late_slots,
                      WorkerTurn& turn, Arena& arena, WorkerPlan& plan) {
  const std::uint64_t room = turn.size_of(turn.missing[0], batch_) + turn.size_of(turn.missing[1], batch_);
  choose_victims(cache, room > cache.free() ? room - cache.free() : 0);
  evict(worker, iteration, cache, arena, plan);
  cache.filled += room;
  vacant_ = cache.vacant;
  vacant_.insert(vacant_.end(), freed_[1].begin(), freed_[1].end());
  early_vacant_ = vacant_.size();
  vacant_.insert(vacant_.end(), late_slots.begin(), late_slots.end());
  vacant_.insert(vacant_.end(), freed_[0].begin(), freed_[0].end());
  place(iteration, cache, turn, arena.u32.data() + plan.unique_slots.begin);
}

void Replacement::choose_victims(CacheMirror& cache, std::uint64_t room) {
  victims_.clear();
  if (sizes_.uniform()) return cache.policy->choose(static_cast<std::uint32_t>(room), victims_);
  for (std::uint64_t made = 0; made < room; made += sizes_[cache.copies[victims_.back()].row]) {
    cache.policy->choose(1, victims_);
  }
}

// No branch: whether the row is in the batch can hardly be predicted.
inline RowState& Replacement::state_of(std::uint32_t row_number) {
  RowState& row = index_[row_number];
  const bool in_batch = row.place == kInBatch;
  RowState* const states[] = {&row, batch_.states.data() + (row.slot & -std::uint32_t{in_batch})};
  return *states[in_batch];
}

// Ahead of a victim: its row in the state index, nearer by the row's state if that is in the batch, then its record.
// Always inlined, as every function that only prefetches: gcc takes it for one without any effect and drops the call.
[[gnu::always_inline]] inline void Replacement::prefetch(const CacheMirror& cache, std::size_t victim) {
  constexpr std::size_t kRow = 32, kState = 20, kRecord = 10;
  const auto row_of = [&](std::size_t at) { return cache.copies[victims_[at]].row; };
  if (victim + kRow < victims_.size()) index_.prefetch(row_of(victim + kRow));
  if (victim + kState < victims_.size()) __builtin_prefetch(&state_of(row_of(victim + kState)), 1);
  if (victim + kRecord < victims_.size()) directory_.prefetch(state_of(row_of(victim + kRecord)));
}

// What a copy owes, and whether its slot is free early, are no branches, since they can hardly be predicted.
void Replacement::evict(unsigned worker, std::uint32_t iteration, CacheMirror& cache, Arena& arena, WorkerPlan& plan) {
  for (auto* list : {&drops_, &rows_, &gradients_}) list->clear();
  for (auto& list : freed_) list.clear();
  const std::size_t count = victims_.size();
  Transfer* leaving[] = {drops_.draft(count), rows_.draft(count), gradients_.draft(count)};
  std::uint32_t* freed[] = {freed_[0].draft(count), freed_[1].draft(count)};
  for (std::size_t i = 0; i < count; ++i) {
    prefetch(cache, i);
    const std::uint32_t slot = victims_[i];
    const Copy& copy = cache.copies[slot];
    RowState& row = state_of(copy.row);
    // An outdated copy owes nothing, whatever the row's state: others have trained it since, or will now.
    const bool owes = !copy.outdated & (row.kind != kClean), split = owes & (row.kind == kSplit);
    const Transfer transfer(row, sizes_[copy.row], directory_.contributors(row), slot, iteration);
    *leaving[owes + split]++ = transfer;
    *freed[transfer.early]++ = slot;
    cache.filled -= transfer.size;
    row.mask &= ~worker_bit(worker);
    if (row.mask == 0) row.kind = kClean;
    directory_.remove(row, worker);
  }
  drops_.end_at(leaving[0]);
  rows_.end_at(leaving[1]);
  gradients_.end_at(leaving[2]);
  for (const bool early : {false, true}) freed_[early].end_at(freed[early]);
  plan.evict_rows = append_rows(arena, rows_.begin(), rows_.size());
  plan.evict_gradients = append_gradients(arena, gradients_.begin(), gradients_.size());
  plan.drops = append_rows(arena, drops_.begin(), drops_.size());
}

// Slots never used before are taken before vacant ones. Rows that the previous iteration does not train come first: they
// and the slots that are free early belong together. Where such slots run out, early pulls become late ones.
void Replacement::place(std::uint32_t iteration, CacheMirror& cache, WorkerTurn& turn, std::uint32_t* slots) {
  const std::size_t missing = turn.missing[0].size() + turn.missing[1].size();
  const std::size_t fresh = missing > vacant_.size() ? missing - vacant_.size() : 0;
  std::size_t placed = 0;
  for (const bool early : {true, false}) {
    for (const std::uint32_t i : turn.missing[early]) {
      const std::uint32_t slot = placed < fresh ? cache.slots() : vacant_[placed - fresh];
      if (placed++ < fresh) cache.copies.emplace_back();
      cache.copies[slot] = {batch_.rows[turn.needs[i].number], use_stamp(iteration), 0, 0, 0};
      slots[i] = slot;
    }
  }
  const std::size_t taken = missing - fresh;
  cache.vacant.assign(vacant_.begin() + static_cast<std::ptrdiff_t>(taken), vacant_.end());
  for (const std::uint32_t slot : cache.vacant) cache.copies[slot].row = kNone;

  const std::size_t early_slots = fresh + early_vacant_;
  if (turn.missing[1].size() > early_slots) turn.delay_pulls(early_slots);
}

}  // namespace esd
