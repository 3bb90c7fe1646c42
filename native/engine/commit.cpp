#include "engine/commit.h"

#include <algorithm>
#include <string>
#include <utility>

namespace esd {

Commit::Commit(Engine& engine)
    : engine_(engine),
      replacement_(engine.index_, engine.batch_, engine.directory_, engine.sizes_),
      turns_(engine.workers()) {}

IterationPlans Commit::run(const std::int32_t* assignment, Arena&& arena) {
  const unsigned workers = engine_.workers();
  const PreparedBatch& batch = engine_.batch_;
  trainers_.assign(batch, assignment, workers);
  check_capacities();
  engine_.row_limit_.check(batch);
  // Nothing has changed so far; from here on nothing is refused.
  engine_.sizes_.learn(batch, engine_.index_.size());
  IterationPlans plans;
  plans.iteration = engine_.iteration_;
  plans.fields = batch.fields;
  plans.arena = std::move(arena);
  plans.workers.resize(workers);
  discarded_late_.assign(workers, {});
  engine_.forget(plans, discarded_late_);
  resolve(batch, trainers_, engine_.directory_, engine_.iteration_, turns_);
  for (unsigned j = 0; j < workers; ++j) {
    turns_[j].write_needs(batch, trainers_, plans.arena, plans.workers[j]);
    turns_[j].write_pushes(batch, engine_.directory_, plans.arena, plans.workers[j]);
  }
  for (unsigned j = 0; j < workers; ++j) serve(j, plans);
  train(plans);

  engine_.lookups_ = engine_.hits_ = 0;
  for (const WorkerPlan& plan : plans.workers) {
    engine_.lookups_ += plan.unique_ids.size;
    engine_.hits_ += plan.unique_ids.size - plan.pulls.ids.size;
  }
  engine_.prepared_ = false;
  ++engine_.iteration_;
  choose_hot_rows();
  return plans;
}

void Commit::check_capacities() const {
  if (engine_.iteration_ == kMaxVersion) throw std::length_error("the engine counts at most 2^30 - 1 iterations");
  const std::vector<std::uint64_t> room = trainers_.room(engine_.batch_);
  for (unsigned j = 0; j < engine_.workers(); ++j) {
    const std::uint32_t capacity = engine_.caches_[j]->capacity;
    if (room[j] <= capacity) continue;
    throw CacheTooSmall("worker " + std::to_string(j) + " caches " + std::to_string(capacity) +
                        (engine_.sizes_.uniform() ? " rows, iteration " : " units of row size, iteration ") +
                        std::to_string(engine_.iteration_) + " needs " + std::to_string(room[j]) +
                        ": give it at least as many by --cache-rows or --cache-ratio, or fewer samples");
  }
}

void Commit::serve(unsigned worker, IterationPlans& plans) {
  CacheMirror& cache = *engine_.caches_[worker];
  WorkerTurn& turn = turns_[worker];
  WorkerPlan& plan = plans.workers[worker];
  Arena& arena = plans.arena;
  cache.policy->outdate(turn.losses.begin(), turn.losses.size(), engine_.iteration_);
  cache.restamp(turn.found.data(), turn.found.size(), engine_.iteration_);
  replacement_.run(worker, engine_.iteration_, cache, discarded_late_[worker], turn, arena, plan);
  cache.policy->use(arena.u32.data() + plan.unique_slots.begin, plan.unique_slots.size);
  turn.write_pulls(engine_.batch_, arena, plan);
  turn.write_samples(trainers_.samples(worker), engine_.batch_, arena, plan, place_in_needs_);
}

// The rows' new states, and back to the state index with them.
void Commit::train(const IterationPlans& plans) {
  constexpr std::size_t kAhead = 24;  // rows prefetched
  PreparedBatch& batch = engine_.batch_;
  const std::uint32_t iteration = engine_.iteration_;
  CopyDirectory& directory = engine_.directory_;
  next_slots_.clear();
  for (const WorkerPlan& plan : plans.workers) next_slots_.push_back(plans.arena.u32.data() + plan.unique_slots.begin);
  const std::uint32_t* const rows = batch.rows.data();
  const std::size_t distinct = batch.distinct();
  for (std::size_t x = 0; x < distinct; ++x) {
    const std::size_t ahead = std::min(x + kAhead, distinct - 1);
    engine_.index_.prefetch(rows[ahead]);
    directory.prefetch(batch.states[ahead]);
    RowState& row = batch.states[x];
    const WorkerMask trainers = trainers_[x];
    // Read before `place`, its neighbour, is written, and written before it, field by field: what has just been written in
    // parts is slow to read as a whole.
    const std::uint32_t version = row.version, life = row.life;
    directory.add(row, trainers, [next = next_slots_.data()](unsigned j) { return *next[j]++; });
    engine_.reuse_.train(version);
    RowState& home = engine_.index_[rows[x]];
    home.mask = trainers;
    home.version = version + 1;
    home.kind = several(trainers) ? kSplit : kOwned;
    home.last_use = iteration;
    home.life = life;
    home.place = row.place;
    home.slot = row.slot;
  }
}

void Commit::choose_hot_rows() {
  if (engine_.policy_ != kStatic || engine_.iteration_ != HotRows::kProfileIterations) return;
  const auto& caches = engine_.cache_sizes_;
  engine_.hot_rows_.choose(engine_.index_, engine_.sizes_, *std::min_element(caches.begin(), caches.end()));
}

}  // namespace esd
