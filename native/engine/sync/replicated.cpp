#include "engine/sync/replicated.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "engine/rows/copies.h"
#include "engine/rows/row_state.h"

namespace esd {

Replication Replicated::checked(const State& state, const Options& options) {
  if (options.room == 0) throw std::invalid_argument("room of replicated rows is 0, it must be at least 1");
  const std::uint32_t least = *std::min_element(state.cache_sizes.begin(), state.cache_sizes.end());
  if (options.room >= least) {
    throw std::invalid_argument("replicated rows of size " + std::to_string(options.room) +
                                " leave no room in the smallest cache, which has " + std::to_string(least));
  }
  const auto all = WorkerSet::first_of(state.workers());
  if (!(options.workers - all).empty()) throw std::invalid_argument("replicated by workers that are not there");
  return {options.room, options.seed, options.workers.empty() ? all : options.workers, options.first_iteration};
}

// All workers that replicate train the batch's replicated rows, and those that become so now.
void Replicated::extend_trainers() {
  idle_.clear();
  const PreparedBatch& batch = state_.batch;
  for (BatchIndex x = 0; x < batch.distinct(); ++x) {
    if (!batch.states[x].pinned && !replication_.wanted(batch.row_numbers[x])) continue;
    const WorkerSet trainers = state_.trainers[x];
    idle_.emplace_back(x, replication_.workers() - trainers);
    state_.trainers.extend(x, replication_.workers() | trainers);
  }
}

std::uint64_t Replicated::pinned_room() const {
  std::uint64_t pinned = replication_.filled();
  for (const auto& [x, idle] : idle_) pinned -= state_.batch.states[x].pinned ? state_.batch.size(x) : 0;
  return pinned;
}

void Replicated::begin(const std::int64_t*, IterationPlans& plans) {
  plans.figures.assign(state_.sizes.tables(), 0);
  for (const auto& [x, idle] : idle_) {
    RowState& row = state_.batch.states[x];
    ++plans.figures[plans.tables == 1 ? 0 : table_in(row.id)];
    if (row.pinned) continue;
    row.pinned = 1;
    replication_.join(state_.batch.row_numbers[x], state_.sizes.of_row(row.id));
  }
}

void Replicated::write_pushes(unsigned worker, WorkerPlan& plan, Arena& arena) {
  mark(worker, plan, arena);
  OnDemand::write_pushes(worker, plan, arena);
}

// Lists a plan's replicated rows. Their only contributor is the worker that will push them for all.
void Replicated::mark(unsigned worker, WorkerPlan& plan, Arena& arena) {
  std::vector<NeedIndex> places;
  places.reserve(idle_.size());
  WorkerSet* const contributors = arena.sets.data() + plan.unique_contributors.begin;
  NeedIndex place = 0;
  for (const Need& need : state_.lists[worker].needs) {
    const RowState& row = state_.batch.states[need.row];
    if (row.pinned) {
      contributors[place] = WorkerSet::only(static_cast<int>(replication_.home(row.id)));
      places.push_back(place);
    }
    ++place;
  }
  plan.reduced = reserve_column(arena.u32, places.size());
  std::copy(places.begin(), places.end(), arena.u32.data() + plan.reduced.begin);
}

// The policy never hears of replicated copies, so none of these is in its order, and none leaves.
void Replicated::use(CacheMirror& cache, const WorkerPlan& plan, const Arena& arena) {
  if (plan.reduced.size == 0) return OnDemand::use(cache, plan, arena);
  const SlotIndex* const slots = arena.u32.data() + plan.unique_slots.begin;
  const NeedIndex* place = arena.u32.data() + plan.reduced.begin;
  const NeedIndex* const end = place + plan.reduced.size;
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

// Counts at each worker the replicated rows that none of its samples uses.
void Replicated::moved(IterationPlans& plans) {
  if (idle_.empty()) return;
  Column<std::uint32_t>& counts = plans.arena.u32;
  for (WorkerPlan& plan : plans.workers) {
    plan.idle = zero_column(counts, plans.tables);
    plan.idle_pulls = zero_column(counts, plans.tables);
  }
  for (const auto& [x, idle] : idle_) {
    const WorkerSet latest = state_.batch.states[x].latest();
    const std::size_t table = plans.tables == 1 ? 0 : table_in(state_.batch.ids[x]);
    idle.for_each([&](unsigned j) {
      WorkerPlan& plan = plans.workers[j];
      const bool pulled = !latest.contains(j);
      ++counts[plan.idle.begin + table];
      counts[plan.idle_pulls.begin + table] += pulled;
      ++plan.all_idle;
      plan.all_idle_pulls += pulled;
    });
  }
}

// Counts what the iteration has read, and chooses anew when it is time.
void Replicated::after(IterationPlans&) {
  replication_.count(state_.batch, state_.index.size());
  if (!replication_.due(state_.iteration)) return;
  for (const RowNumber number : replication_.choose(state_.index, state_.sizes)) {
    RowState& row = state_.index[number];
    const unsigned home = replication_.home(row.id);
    if (replication_.unpushed(row)) owe(home, number, state_.directory.find(row).slot(home));
    row.pinned = 0;
    unpin(number);
  }
}

void Replicated::flush() {
  OnDemand::flush();
  replication_.flush(state_.iteration);
}

bool Replicated::unpushed(const RowState& row, unsigned worker) const {
  const bool pushes_for_all = row.pinned && replication_.unpushed(row) && replication_.home(row.id) == worker;
  return pushes_for_all || OnDemand::unpushed(row, worker);
}

void Replicated::forget(const std::vector<RowNumber>& rows) {
  OnDemand::forget(rows);
  for (const RowNumber number : rows) {
    const RowState& row = state_.index[number];
    replication_.forget(number, row.pinned, state_.sizes.of_row(row.id));
  }
}

SavedSync Replicated::save() const {
  OnDemand::save();
  return {replication_.workers(), replication_.flushed(), replication_.heat(), replication_.flags()};
}

// Where other workers replicate now, all rows are clean; those that are hot join again when they are trained.
void Replicated::restore(SavedSync&& saved) {
  replication_.restore(saved.flushed, std::move(saved.heat), std::move(saved.flags));
  if (saved.workers != replication_.workers()) return OnDemand::restore({});
  owed_.assign(state_.workers(), {});
  for (RowNumber number = 0; number < state_.index.size(); ++number) {
    const RowState& row = state_.index[number];
    if (row.location == kUnused || !row.pinned) continue;
    replication_.join(number, state_.sizes.of_row(row.id));
  }
}

}  // namespace esd
