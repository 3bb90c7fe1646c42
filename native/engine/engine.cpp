#include "engine/engine.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "common/workers.h"
#include "engine/batch/scores.h"
#include "engine/memory/sort_by_id.h"
#include "engine/plan/resolve.h"
#include "engine/rows/copies.h"
#include "engine/rows/row_state.h"

namespace esd {
namespace {

void place(const CacheMirror& cache, Span slots, Arena& arena) {
  SlotIndex* const first = arena.u32.data() + slots.begin;
  std::transform(first, first + slots.size, first, [&](SlotIndex slot) { return cache.table_slot(slot); });
}

}  // namespace

Engine::Engine(EngineOptions options, const Way& way)
    : state_(
          std::move(options.cache_sizes), std::move(options.policy),
          RowSizes(std::move(options.table_sizes), std::move(options.gradient_shares), std::move(options.value_shares)),
          options.window > 0),
      row_limit_(options.max_rows),
      row_ttl_(std::move(options.row_ttls), state_.sizes),
      memory_(std::accumulate(state_.cache_sizes.begin(), state_.cache_sizes.end(), std::uint64_t{0})),
      history_(workers()),
      sync_(way.make(state_)),
      window_(options.window),
      spare_rows_(options.spare_rows),
      replacement_(state_) {
  if (window_ > 0 && (row_limit_.active() || row_ttl_.active())) {
    throw std::invalid_argument("an engine that forgets rows of the table must know them all: window must be 0");
  }
}

void Engine::prepare(const SampleIds& ids) {
  state_.sizes.check(ids.ids, ids.count());
  abandon_batch();
  finder_.find(ids, state_.batch);
  look_up();
}

void Engine::prepare(const BatchIds& ids) {
  state_.sizes.check(ids.ids.data(), ids.distinct());
  abandon_batch();
  static_cast<BatchIds&>(state_.batch) = ids;
  look_up();
}

void Engine::look_up() {
  state_.batch.look_up(state_.index);
  prepared_ = true;
  recall_trainings();
  state_.sizes.describe(state_.batch);
}

void Engine::check_out() {
  state_.index.check_out(state_.batch.row_numbers, state_.batch.states);
  prepared_ = true;
}

void Engine::check_in() {
  if (prepared_) state_.index.check_in(state_.batch.row_numbers, state_.batch.states);
  prepared_ = false;
}

const PreparedBatch& Engine::batch() const {
  if (!prepared_) throw std::logic_error("no batch is prepared; call prepare first");
  return state_.batch;
}

void Engine::check_link_costs(const std::int32_t* link_costs) const {
  const std::int64_t highest = *std::max_element(link_costs, link_costs + workers());
  if (*std::min_element(link_costs, link_costs + workers()) < 0) {
    throw std::invalid_argument("a link cost is negative");
  }
  if (2 * highest * static_cast<std::int64_t>(batch().sample_size) > INT32_MAX) {
    throw std::invalid_argument("link cost " + std::to_string(highest) +
                                " is too large for a sample whose rows have size " +
                                std::to_string(batch().sample_size) + " together: 2 * cost * size must be below 2^31");
  }
}

void Engine::costs(const std::int32_t* link_costs, std::int32_t* out) const {
  check_link_costs(link_costs);
  expected_costs(batch(), workers(), link_costs, sync_->scoring().pushed_next, out);
}

void Engine::affinity(AtHand at_hand, std::int32_t* out) const { affinities(batch(), workers(), at_hand, out); }

void Engine::affinity(AtHand at_hand, const std::vector<std::uint32_t>& fields, std::int32_t* out) const {
  for (const std::uint32_t field : fields) {
    if (field < batch().fields) continue;
    throw std::invalid_argument("field " + std::to_string(field) + " is chosen, the batch has " +
                                std::to_string(batch().fields));
  }
  affinities(batch(), workers(), at_hand, fields, out);
}

void Engine::room_needed(std::int32_t* out) const { esd::room_needed(batch(), state_.directory, workers(), out); }

void Engine::training_shares(std::int32_t* out) { history_.shares(batch(), out); }

Preview Engine::preview(const std::int32_t* assignment) const {
  check_assignment(batch(), assignment, workers());
  const Scoring scoring = sync_->scoring();
  return esd::preview(state_.batch, state_.sizes, assignment, state_.batch.samples, workers(), scoring.pushed_next,
                      scoring.together);
}

void Engine::check_limits(const JointRequest& request) const {
  for (unsigned j = 0; j < workers(); ++j) {
    const std::int32_t least = request.limits->least[j], most = request.limits->most[j];
    if (least < 0 || request.capacities[j] < least || request.capacities[j] > most) {
      throw std::invalid_argument("capacity of worker " + std::to_string(j) + " is " +
                                  std::to_string(request.capacities[j]) + ", its limits are " + std::to_string(least) +
                                  ".." + std::to_string(most));
    }
    if (!(request.limits->sample_costs[j] >= 0 && request.limits->sample_costs[j] < 1e300)) {
      throw std::invalid_argument("the sample cost of worker " + std::to_string(j) + " must be finite, not negative");
    }
    if (!(request.limits->fixed_costs[j] >= 0 && request.limits->fixed_costs[j] < 1e300)) {
      throw std::invalid_argument("the fixed cost of worker " + std::to_string(j) + " must be finite, not negative");
    }
  }
}

JointResult Engine::joint(const JointRequest& request) const {
  check_link_costs(request.link_costs);
  std::int64_t room = 0;
  for (unsigned j = 0; j < workers(); ++j) {
    if (request.capacities[j] < 0) {
      throw std::invalid_argument("capacity of worker " + std::to_string(j) + " is " +
                                  std::to_string(request.capacities[j]) + ", it must not be negative");
    }
    room += request.capacities[j];
  }
  const std::int64_t later = std::accumulate(request.lookahead.begin(), request.lookahead.end(), std::int64_t{0});
  if (room + later != static_cast<std::int64_t>(batch().samples) || (room == 0 && later > 0)) {
    throw std::invalid_argument("capacities sum to " + std::to_string(room) + ", the batch has " +
                                std::to_string(batch().samples) + " samples, " + std::to_string(later) +
                                " of them in batches that follow");
  }
  if (request.limits) check_limits(request);
  if (request.sites) check_sites(request);
  return joint_search(batch(), state_.sizes, reuse_, request);
}

void Engine::check_sites(const JointRequest& request) const {
  const JointSites& sites = *request.sites;
  if (request.limits || !request.lookahead.empty()) {
    throw std::invalid_argument("sites exclude limits of workloads and a lookahead");
  }
  std::vector<std::int64_t> left(sites.count);  // samples of each site beyond the room of its workers
  const auto count = [&](const char* what, std::int32_t site) -> std::int64_t& {
    if (site < 0 || static_cast<unsigned>(site) >= sites.count) {
      throw std::invalid_argument(std::string("a ") + what + " is of site " + std::to_string(site) + ", there are " +
                                  std::to_string(sites.count));
    }
    return left[static_cast<std::size_t>(site)];
  };
  for (std::size_t i = 0; i < batch().samples; ++i) ++count("sample", sites.of_samples[i]);
  for (unsigned j = 0; j < workers(); ++j) count("worker", sites.of_workers[j]) -= request.capacities[j];
  for (std::size_t site = 0; site < left.size(); ++site) {
    if (left[site] == 0) continue;
    throw std::invalid_argument("site " + std::to_string(site) + " has " + std::to_string(left[site]) +
                                " samples more than the capacities of its workers");
  }
}

IterationPlans Engine::commit(const std::int32_t* assignment, Arena&& arena, const std::int64_t* limits) {
  state_.trainers.assign(batch(), assignment, workers());
  sync_->extend_trainers();
  check_room();
  row_limit_.check(state_.batch);
  lives_.check();
  // Nothing has changed so far; from here on nothing is refused.
  IterationPlans plans = empty_plans(std::move(arena));
  forget_rows(plans);
  begin_lives();
  sync_->begin(limits, plans);
  resolve(state_.batch, state_.trainers, state_.directory, state_.iteration, state_.lists);
  for (unsigned j = 0; j < workers(); ++j) {
    state_.lists[j].write_needs(state_.batch, state_.trainers, plans.arena, plans.workers[j]);
    sync_->write_pushes(j, plans.workers[j], plans.arena);
  }
  for (unsigned j = 0; j < workers(); ++j) make_room(j, plans);
  sync_->moved(plans);
  for (unsigned j = 0; j < workers(); ++j) {
    WorkerPlan& plan = plans.workers[j];
    state_.lists[j].write_pulls(state_.batch, state_.sizes, lives_.present() > 0, plans.arena, plan);
    state_.lists[j].write_samples(state_.trainers.samples(j), state_.batch, plans.arena, plan, need_of_);
  }
  history_.train(state_.batch, state_.trainers, state_.index.size());
  train(plans);
  count_hits(plans);
  ++state_.iteration;
  sync_->after(plans);
  choose_hot_rows();
  release_rows();
  place_slots(plans);
  return plans;
}

void Engine::look_ahead(const std::uint64_t* ids, std::size_t count, std::uint32_t iteration) {
  abandon_batch();
  sync_->look_ahead(ids, count, iteration);
}

void Engine::check_room() const {
  if (state_.iteration == kMaxIteration) throw std::length_error("the engine counts at most 2^28 - 1 iterations");
  const std::uint64_t pinned = sync_->pinned_room();
  const std::vector<std::uint64_t> room = state_.trainers.room(state_.batch);
  for (unsigned j = 0; j < workers(); ++j) {
    const std::uint32_t capacity = state_.caches[j]->capacity;
    if (room[j] + pinned <= capacity) continue;
    throw CacheTooSmall("worker " + std::to_string(j) + " caches " + std::to_string(capacity) +
                        (state_.sizes.uniform() ? " rows, iteration " : " units of row size, iteration ") +
                        std::to_string(state_.iteration) + " needs " + std::to_string(room[j] + pinned) +
                        (pinned > 0 ? ", " + std::to_string(pinned) + " of them for rows that stay" : "") +
                        ": give it at least as many by --cache-rows or --cache-ratio, or fewer samples");
  }
}

IterationPlans Engine::empty_plans(Arena&& arena) const {
  IterationPlans plans;
  plans.iteration = state_.iteration;
  plans.fields = state_.batch.fields;
  plans.tables = state_.sizes.tables();
  plans.arena = std::move(arena);
  plans.workers.resize(workers());
  return plans;
}

// Evicts what must leave for the rows that a worker lacks, and gives these their slots.
void Engine::make_room(unsigned worker, IterationPlans& plans) {
  CacheMirror& cache = *state_.caches[worker];
  const WorkerLists& lists = state_.lists[worker];
  WorkerPlan& plan = plans.workers[worker];
  cache.policy->outdate(lists.outdated.begin(), lists.outdated.size(), state_.iteration);
  cache.restamp(lists.cached.data(), lists.cached.size(), state_.iteration);
  sync_->make_room(worker, replacement_, discarded_late_[worker], plans.arena, plan);
  sync_->use(cache, plan, plans.arena);
}

// Gives the batch's rows their new states and returns them to the state index.
void Engine::train(const IterationPlans& plans) {
  constexpr std::size_t kAhead = 24;  // rows ahead that are prefetched
  next_slots_.clear();
  for (const WorkerPlan& plan : plans.workers) next_slots_.push_back(plans.arena.u32.data() + plan.unique_slots.begin);
  const std::uint32_t iteration = state_.iteration;
  const SlotIndex** const next = next_slots_.data();
  const RowNumber* const numbers = state_.batch.row_numbers.data();
  RowState* const states = state_.batch.states.data();
  const std::size_t distinct = state_.batch.distinct();
  for (std::size_t x = 0; x < distinct; ++x) {
    const std::size_t ahead = std::min(x + kAhead, distinct - 1);
    state_.index.prefetch(numbers[ahead]);
    state_.directory.prefetch(states[ahead]);
    RowState& row = states[x];
    const WorkerSet trainers = state_.trainers[x];
    // The state is read before `location`, its neighbour, is written: what has just been written in parts is slow to read
    // as a whole. It is written as a whole, which takes fewer instructions than field by field.
    const std::uint64_t id = row.id;
    const std::uint32_t version = row.version, life = row.life, pinned = row.pinned, trainings = row.trainings;
    state_.directory.add(row, trainers, [next](unsigned j) { return *next[j]++; });
    reuse_.train(trainings);
    const std::uint32_t kind = pinned ? kClean : trainers.several() ? kSplit : kOwned;
    state_.index[numbers[x]] = {
        id,           trainers, version + 1, kind,    iteration, trainings + (trainings < kManyTrainings),
        row.location, pinned,   life,        row.slot};
  }
  prepared_ = false;
}

void Engine::count_hits(const IterationPlans& plans) {
  lookups_ = hits_ = 0;
  for (const WorkerPlan& plan : plans.workers) {
    lookups_ += plan.lookups();
    hits_ += plan.hits();
  }
}

void Engine::choose_hot_rows() {
  if (state_.policy != kStatic || state_.iteration != HotRows::kProfileIterations) return;
  state_.hot_rows.choose(state_.index, state_.sizes,
                         *std::min_element(state_.cache_sizes.begin(), state_.cache_sizes.end()));
}

// The worker knows a slot by its table and its place in that table's cache. With one table both are the same.
void Engine::place_slots(IterationPlans& plans) const {
  if (state_.sizes.uniform()) return;
  for (unsigned j = 0; j < workers(); ++j) {
    const WorkerPlan& plan = plans.workers[j];
    for (const Span& slots :
         {plan.update_rows.slots, plan.update_gradients.slots, plan.evict_rows.slots, plan.evict_gradients.slots,
          plan.drops.slots, plan.discards.slots, plan.pulls.slots, plan.unique_slots}) {
      place(*state_.caches[j], slots, plans.arena);
    }
  }
}

void Engine::place_slots(FlushPlans& plans) const {
  if (state_.sizes.uniform()) return;
  for (unsigned j = 0; j < workers(); ++j) {
    place(*state_.caches[j], plans.workers[j].rows.slots, plans.arena);
    place(*state_.caches[j], plans.workers[j].gradients.slots, plans.arena);
  }
}

FlushPlans Engine::flush() {
  FlushPlans plans;
  plans.iteration = state_.iteration;
  const bool prepared = prepared_;
  check_in();
  plans.workers.resize(workers());
  sync_->flush();
  for (unsigned j = 0; j < workers(); ++j) sync_->write_owed(j, plans.arena, plans.workers[j]);
  place_slots(plans);
  if (prepared) check_out();
  return plans;
}

std::size_t Engine::cache_bytes() const {
  std::size_t bytes = state_.directory.memory_bytes();
  for (const auto& cache : state_.caches) bytes += cache->memory_bytes();
  return bytes;
}

std::size_t Engine::memory_bytes() const {
  return state_.index.memory_bytes() + state_.hot_rows.memory_bytes() + row_limit_.memory_bytes() +
         row_ttl_.memory_bytes() + state_.uncached.memory_bytes() + memory_.memory_bytes() + history_.memory_bytes() +
         cache_bytes() + finder_.memory_bytes() + state_.batch.memory_bytes() + sync_->memory_bytes();
}

}  // namespace esd
