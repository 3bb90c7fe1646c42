// Rows that leave a full table: out of the state index and of all caches, without a push.
#include "engine/engine.h"

namespace esd {

void Engine::forget(IterationPlans& plans, std::vector<Slots>& late_slots) {
  if (!row_limit_.active()) return;
  row_limit_.make_room(index_, batch_, iteration_, forgotten_);
  plans.forgotten = add_column(plans.arena.u64, forgotten_.size());
  plans.forgotten_below = first_version(row_limit_.life());
  std::vector<std::vector<Transfer>> discards(workers());
  for (std::size_t i = 0; i < forgotten_.size(); ++i) {
    const std::uint32_t number = forgotten_[i];
    plans.arena.u64[plans.forgotten.begin + i] = index_[number].id;
    for_each_worker(directory_.cached(index_[number]), [&](unsigned worker) {
      const Transfer discard = discard_copy(number, worker);
      (discard.early ? caches_[worker]->vacant : late_slots[worker]).push_back(discard.slot);
      discards[worker].push_back(discard);
    });
    hot_rows_.forget(number);
    sizes_.forget(number);
    index_.remove(number);
  }
  for (unsigned j = 0; j < workers(); ++j) {
    plans.workers[j].discards = append_rows(plans.arena, discards[j].data(), discards[j].size());
  }
  for (RowState& row : batch_.states) {
    if (row.version == 0) row.life = row_limit_.life();
  }
}

Transfer Engine::discard_copy(std::uint32_t number, unsigned worker) {
  RowState& row = index_[number];
  CacheMirror& cache = *caches_[worker];
  const std::uint32_t slot = directory_.find(row).slot(worker);
  const Transfer discard(row, sizes_[number], 0, slot, iteration_);
  cache.copies[slot].row = kNone;
  cache.copies[slot].stamp = kNone;  // no record in the policy's queues names it any more
  cache.filled -= discard.size;
  row.mask &= ~worker_bit(worker);
  directory_.remove(row, worker);
  return discard;
}

}  // namespace esd
