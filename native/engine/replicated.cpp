// The engine's part in replicated rows: they join when they are trained, all workers train them, and they leave when
// others are hotter. Whoever decides on a batch knows them as clean, at hand at every worker.
#include <algorithm>
#include <vector>

#include "engine/engine.h"
#include "engine/rows/copies.h"
#include "engine/rows/row_state.h"

namespace esd {

// All workers that replicate train the batch's replicated rows, and those that become so now.
void Engine::extend_trainers() {
  idle_.clear();
  for (BatchIndex x = 0; x < batch_.distinct(); ++x) {
    if (!batch_.states[x].replicated && !replication_.wanted(batch_.row_numbers[x])) continue;
    idle_.emplace_back(x, replication_.workers() - trainers_[x]);
    trainers_.extend(x, replication_.workers() | trainers_[x]);
  }
}

void Engine::join_replicated() {
  for (const auto& [x, idle] : idle_) {
    RowState& row = batch_.states[x];
    if (row.replicated) continue;
    row.replicated = 1;
    replication_.join(batch_.row_numbers[x], sizes_.of_row(row.id));
  }
}

// Tells a plan which of its rows are replicated. Their only contributor is the worker that will push them for all.
void Engine::mark_replicated(unsigned worker, WorkerPlan& plan, Arena& arena) {
  std::vector<NeedIndex> places;
  places.reserve(idle_.size());
  std::uint64_t* const contributors = arena.u64.data() + plan.unique_contributors.begin;
  NeedIndex place = 0;
  for (const Need& need : lists_[worker].needs) {
    const RowState& row = batch_.states[need.row];
    if (row.replicated) {
      contributors[place] = WorkerSet::only(static_cast<int>(replication_.home(row.id))).bits;
      places.push_back(place);
    }
    ++place;
  }
  plan.replicated = reserve_column(arena.u32, places.size());
  std::copy(places.begin(), places.end(), arena.u32.data() + plan.replicated.begin);
}

// Tells the policy which copies the iteration uses. It never hears of replicated ones, so none of these is in its order,
// and none leaves.
void Engine::use_copies(CacheMirror& cache, const WorkerPlan& plan, const Arena& arena) {
  const SlotIndex* const slots = arena.u32.data() + plan.unique_slots.begin;
  if (plan.replicated.size == 0) return cache.policy->use(slots, plan.unique_slots.size);
  const NeedIndex* place = arena.u32.data() + plan.replicated.begin;
  const NeedIndex* const end = place + plan.replicated.size;
  unpinned_.clear();
  for (NeedIndex i = 0; i < plan.unique_slots.size; ++i) {
    if (place < end && *place == i) {
      ++place;
    } else {
      unpinned_.push_back(slots[i]);
    }
  }
  cache.policy->use(unpinned_.data(), unpinned_.size());
}

// Counts at each worker the replicated rows that none of its samples uses. Called before the batch's rows change.
void Engine::count_idle(IterationPlans& plans) const {
  for (const auto& [x, idle] : idle_) {
    const WorkerSet latest = batch_.states[x].latest();
    const std::size_t table = plans.tables == 1 ? 0 : table_in(batch_.ids[x]);
    idle.for_each([&](unsigned j) {
      ++plans.workers[j].idle[table];
      plans.workers[j].idle_pulls[table] += !latest.contains(j);
    });
  }
}

// Counts what the iteration has read, and chooses anew when it is time. Called when the state has advanced.
void Engine::swap_replicated() {
  replication_.count(batch_, index_.size());
  if (!replication_.due(iteration_)) return;
  for (const RowNumber number : replication_.choose(index_, sizes_)) {
    RowState& row = index_[number];
    const unsigned home = replication_.home(row.id);
    if (replication_.unpushed(row)) owe(home, number, directory_.find(row).slot(home));
    row.replicated = 0;
    release(number);
  }
}

// The copies of a row that is replicated no longer are as if the last iteration had used them.
void Engine::release(RowNumber number) {
  const RowState& row = index_[number];
  row.holders.for_each([&](unsigned j) {
    CacheMirror& cache = *caches_[j];
    const SlotIndex slot = directory_.find(row).slot(j);
    cache.restamp(&slot, 1, iteration_ - 1);
    cache.policy->use(&slot, 1);
  });
}

// Takes the rows up that a snapshot has as replicated, by `workers`. Where others replicate now, or nobody does, they are
// clean rows, which they were after the flush before it; those that are hot join again when they are trained.
void Engine::restore_replicated(WorkerSet workers) {
  for (RowNumber number = 0; number < index_.size(); ++number) {
    RowState& row = index_[number];
    if (row.location == kUnused || !row.replicated) continue;
    if (replication_.active() && workers == replication_.workers()) {
      replication_.join(number, sizes_.of_row(row.id));
    } else {
      row.replicated = 0;
      release(number);
    }
  }
}

}  // namespace esd
