#include "engine/engine.h"

#include <algorithm>
#include <numeric>
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
  std::transform(first, first + slots.size, first, [&](SlotIndex slot) { return cache.place(slot); });
}

}  // namespace

Engine::Engine(std::vector<std::uint32_t> cache_sizes, std::string policy, std::vector<std::uint32_t> table_sizes,
               std::uint64_t max_rows, RowSizes::Shares gradient_shares, RowSizes::Shares value_shares,
               bool push_trained, bool flush_ahead, Replication replication, std::optional<StalenessBounds> bounds,
               std::vector<bool> additive, bool direct)
    : cache_sizes_(std::move(cache_sizes)),
      policy_(std::move(policy)),
      push_trained_(push_trained),
      flush_ahead_(flush_ahead),
      pushed_next_(push_trained || (bounds && bounds->push == 0)),
      direct_(direct),
      sizes_(std::move(table_sizes), std::move(gradient_shares), std::move(value_shares)),
      replication_(std::move(replication)),
      row_limit_(max_rows),
      caches_(make_caches()),
      directory_(workers()),
      history_(workers()),
      flush_queue_(workers()),
      owed_(workers()),
      staleness_(bounds ? std::optional<Staleness>(std::in_place, workers(), *bounds, std::move(additive))
                        : std::nullopt),
      given_(workers()),
      spent_(workers()),
      lists_(workers()),
      replacement_(index_, batch_, directory_, sizes_, staleness_ ? &*staleness_ : nullptr) {}

std::vector<std::unique_ptr<CacheMirror>> Engine::make_caches() const {
  std::vector<std::unique_ptr<CacheMirror>> caches;
  for (const std::uint32_t size : cache_sizes_) {
    caches.push_back(std::make_unique<CacheMirror>(size, policy_, RowTraits{sizes_, hot_rows_, index_}));
  }
  return caches;
}

void Engine::prepare(const SampleIds& ids) {
  sizes_.check(ids.ids, ids.count());
  check_in();
  finder_.find(ids, batch_);
  look_up();
}

void Engine::prepare(const BatchIds& ids) {
  sizes_.check(ids.ids.data(), ids.distinct());
  check_in();
  static_cast<BatchIds&>(batch_) = ids;
  look_up();
}

void Engine::look_up() {
  batch_.look_up(index_);
  prepared_ = true;
  sizes_.describe(batch_);
}

void Engine::check_out() {
  index_.check_out(batch_.row_numbers, batch_.states);
  prepared_ = true;
}

void Engine::check_in() {
  if (prepared_) index_.check_in(batch_.row_numbers, batch_.states);
  prepared_ = false;
}

const PreparedBatch& Engine::batch() const {
  if (!prepared_) throw std::logic_error("no batch is prepared; call prepare first");
  return batch_;
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
  expected_costs(batch(), workers(), link_costs, pushed_next_, out);
}

void Engine::affinity(std::int32_t* out) const { affinities(batch(), workers(), out); }

void Engine::affinity(const std::vector<std::uint32_t>& fields, std::int32_t* out) const {
  for (const std::uint32_t field : fields) {
    if (field < batch().fields) continue;
    throw std::invalid_argument("field " + std::to_string(field) + " is chosen, the batch has " +
                                std::to_string(batch().fields));
  }
  affinities(batch(), workers(), fields, out);
}

void Engine::room_needed(std::int32_t* out) const { esd::room_needed(batch(), directory_, workers(), out); }

void Engine::training_shares(std::int32_t* out) { history_.shares(batch(), out); }

Preview Engine::preview(const std::int32_t* assignment) const {
  check_assignment(batch(), assignment, workers());
  return esd::preview(batch_, sizes_, assignment, batch_.samples, workers(), pushed_next_, !staleness_);
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
  return joint_search(batch(), sizes_, reuse_, request);
}

IterationPlans Engine::commit(const std::int32_t* assignment, Arena&& arena, const std::int64_t* flush_limits) {
  trainers_.assign(batch(), assignment, workers());
  if (replication_.active()) extend_trainers();
  check_room();
  row_limit_.check(batch_);
  // Nothing has changed so far; from here on nothing is refused.
  IterationPlans plans = empty_plans(std::move(arena));
  forget_rows(plans);
  if (replication_.active()) join_replicated();
  if (flush_limits != nullptr) flush_ahead(flush_limits, plans);
  if (staleness_) staleness_->grow(index_.size());
  resolve(batch_, trainers_, directory_, iteration_, lists_);
  for (unsigned j = 0; j < workers(); ++j) {
    WorkerPlan& plan = plans.workers[j];
    lists_[j].write_needs(batch_, trainers_, plans.arena, plan);
    if (replication_.active()) mark_replicated(j, plan, plans.arena);
    if (!staleness_) write_pushes(j, plan, plans.arena);
    if (direct_) lists_[j].write_direct_pushes(batch_, trainers_, plans.arena, plan);
  }
  for (unsigned j = 0; j < workers(); ++j) make_room(j, plans);
  if (staleness_) synchronise(plans);
  for (unsigned j = 0; j < workers(); ++j) {
    WorkerPlan& plan = plans.workers[j];
    lists_[j].write_pulls(sizes_, plans.arena, plan);
    lists_[j].write_samples(trainers_.samples(j), batch_, plans.arena, plan, need_of_);
    if (direct_) lists_[j].write_direct_pulls(plans.arena, plan);
  }
  history_.train(batch_, trainers_, index_.size());
  if (replication_.active()) count_idle(plans);
  train(plans);
  count_hits(plans);
  ++iteration_;
  if (push_trained_) owe_trained(plans);
  if (staleness_) count_updates(plans);
  if (flush_ahead_) await_flush();
  if (replication_.active()) swap_replicated();
  choose_hot_rows();
  place_slots(plans);
  return plans;
}

// What is owed besides what the batch needs comes among it, in the order of ids, as readers of plans expect.
void Engine::write_pushes(unsigned worker, WorkerPlan& plan, Arena& arena) {
  const WorkerLists& lists = lists_[worker];
  OwedPushes& owed = owed_[worker];
  if (owed.empty()) return lists.write_pushes(batch_, directory_, arena, plan);
  for (const Payload payload : {kRow, kGradient}) {
    std::vector<TransferRow>& pushes = payload == kRow ? owed.rows : owed.gradients;
    for (const Timing timing : {kEarly, kLate}) {
      for (const auto [x, slot] : lists.pushes[payload][timing]) {
        const RowState& row = batch_.states[x];
        pushes.emplace_back(row, sizes_.of_row(row.id), directory_.contributors(row), slot, iteration_);
      }
    }
  }
  SorterById<std::vector<TransferRow>> sorter;
  owed.sort(sorter);
  owed.write(arena, plan.update_rows, plan.update_gradients);
}

void Engine::check_room() const {
  if (iteration_ == kMaxVersion) throw std::length_error("the engine counts at most 2^30 - 1 iterations");
  std::uint64_t pinned = replication_.filled();  // by replicated rows that the batch does not train
  for (const auto& [x, idle] : idle_) pinned -= batch_.states[x].replicated ? batch_.size(x) : 0;
  const std::vector<std::uint64_t> room = trainers_.room(batch_);
  for (unsigned j = 0; j < workers(); ++j) {
    const std::uint32_t capacity = caches_[j]->capacity;
    if (room[j] + pinned <= capacity) continue;
    throw CacheTooSmall("worker " + std::to_string(j) + " caches " + std::to_string(capacity) +
                        (sizes_.uniform() ? " rows, iteration " : " units of row size, iteration ") +
                        std::to_string(iteration_) + " needs " + std::to_string(room[j] + pinned) +
                        (pinned > 0 ? ", " + std::to_string(pinned) + " of them for other replicated rows" : "") +
                        ": give it at least as many by --cache-rows or --cache-ratio, or fewer samples");
  }
}

IterationPlans Engine::empty_plans(Arena&& arena) const {
  IterationPlans plans;
  plans.iteration = iteration_;
  plans.fields = batch_.fields;
  plans.tables = sizes_.tables();
  plans.arena = std::move(arena);
  plans.workers.resize(workers());
  plans.pushed_ahead.resize(workers());
  return plans;
}

// Makes room in a full table for the rows that the batch brings. Forgotten rows leave the state index and all caches
// without a push. Slots that are in use until the previous iteration ends go to `discarded_late_`, others are vacant.
void Engine::forget_rows(IterationPlans& plans) {
  discarded_late_.assign(workers(), {});
  if (!row_limit_.active()) return;
  row_limit_.make_room(index_, batch_, iteration_, forgotten_);
  plans.forgotten = reserve_column(plans.arena.u64, forgotten_.size());
  plans.forgotten_below = first_version(row_limit_.life());
  std::vector<std::vector<TransferRow>> discards(workers());
  for (std::size_t i = 0; i < forgotten_.size(); ++i) {
    const RowNumber number = forgotten_[i];
    plans.arena.u64[plans.forgotten.begin + i] = index_[number].id;
    directory_.cached(index_[number]).for_each([&](unsigned worker) {
      const TransferRow discard = discard_copy(number, worker);
      CacheMirror& cache = *caches_[worker];
      const TableNumber table = cache.copies[discard.slot].table;
      (discard.timing == kEarly ? cache.vacant[table] : discarded_late_[worker]).push_back(discard.slot);
      discards[worker].push_back(discard);
    });
    hot_rows_.forget(number);
    replication_.forget(number, index_[number].replicated, sizes_.of_row(index_[number].id));
    history_.forget(number);
    index_.forget(number);
  }
  const std::uint64_t* const ids = plans.arena.u64.data() + plans.forgotten.begin;
  std::vector<std::uint64_t> leaving(ids, ids + plans.forgotten.size);
  std::sort(leaving.begin(), leaving.end());
  for (unsigned j = 0; j < workers(); ++j) {
    plans.workers[j].discards = append_rows(plans.arena, discards[j].data(), discards[j].size());
    owed_[j].forget(leaving);
  }
  if (staleness_) keep_nothing_of(forgotten_);
  for (RowState& row : batch_.states) {
    if (row.version == 0) row.life = row_limit_.life();
  }
}

TransferRow Engine::discard_copy(RowNumber number, unsigned worker) {
  RowState& row = index_[number];
  CacheMirror& cache = *caches_[worker];
  const SlotIndex slot = directory_.find(row).slot(worker);
  const TransferRow discard(row, sizes_.of_row(row.id), WorkerSet{}, slot, iteration_);
  cache.copies[slot].row = kNoRow;
  cache.copies[slot].stamp = kNoStamp;  // so that no record in the policy's queues names it any more
  cache.filled -= discard.size;
  row.holders.remove(worker);
  directory_.remove(row, worker);
  return discard;
}

// Evicts what must leave for the rows that a worker lacks, and gives these their slots.
void Engine::make_room(unsigned worker, IterationPlans& plans) {
  CacheMirror& cache = *caches_[worker];
  WorkerLists& lists = lists_[worker];
  WorkerPlan& plan = plans.workers[worker];
  Arena& arena = plans.arena;
  if (staleness_) lists.outdated.clear();  // what others train does not make a copy useless at once
  cache.policy->outdate(lists.outdated.begin(), lists.outdated.size(), iteration_);
  cache.restamp(lists.cached.data(), lists.cached.size(), iteration_);
  replacement_.run(worker, iteration_, cache, discarded_late_[worker], lists, arena, plan);
  use_copies(cache, plan, arena);
}

// Gives the batch's rows their new states and returns them to the state index.
void Engine::train(const IterationPlans& plans) {
  constexpr std::size_t kAhead = 24;  // rows ahead that are prefetched
  next_slots_.clear();
  for (const WorkerPlan& plan : plans.workers) next_slots_.push_back(plans.arena.u32.data() + plan.unique_slots.begin);
  const std::uint32_t iteration = iteration_;
  const RowNumber* const numbers = batch_.row_numbers.data();
  const std::size_t distinct = batch_.distinct();
  for (std::size_t x = 0; x < distinct; ++x) {
    const std::size_t ahead = std::min(x + kAhead, distinct - 1);
    index_.prefetch(numbers[ahead]);
    directory_.prefetch(batch_.states[ahead]);
    RowState& row = batch_.states[x];
    const WorkerSet trainers = trainers_[x];
    // The state is read before `location`, its neighbour, is written, and written before it, field by field: what has
    // just been written in parts is slow to read as a whole.
    const std::uint32_t version = row.version, life = row.life, replicated = row.replicated;
    directory_.add(row, trainers, [next = next_slots_.data()](unsigned j) { return *next[j]++; });
    reuse_.train(version);
    RowState& home = index_[numbers[x]];
    home.holders = trainers;
    home.version = version + 1;
    home.kind = replicated ? kClean : trainers.several() ? kSplit : kOwned;
    home.last_use = iteration;
    home.life = life;
    home.replicated = replicated;
    home.location = row.location;
    home.slot = row.slot;
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
  if (policy_ != kStatic || iteration_ != HotRows::kProfileIterations) return;
  hot_rows_.choose(index_, sizes_, *std::min_element(cache_sizes_.begin(), cache_sizes_.end()));
}

// The worker knows a slot by its table and its place in that table's cache. With one table both are the same.
void Engine::place_slots(IterationPlans& plans) const {
  if (sizes_.uniform()) return;
  for (unsigned j = 0; j < workers(); ++j) {
    const WorkerPlan& plan = plans.workers[j];
    for (const Span& slots :
         {plan.update_rows.slots, plan.update_gradients.slots, plan.evict_rows.slots, plan.evict_gradients.slots,
          plan.drops.slots, plan.discards.slots, plan.pulls.slots, plan.unique_slots}) {
      place(*caches_[j], slots, plans.arena);
    }
  }
}

void Engine::place_slots(FlushPlans& plans) const {
  if (sizes_.uniform()) return;
  for (unsigned j = 0; j < workers(); ++j) {
    place(*caches_[j], plans.workers[j].rows.slots, plans.arena);
    place(*caches_[j], plans.workers[j].gradients.slots, plans.arena);
  }
}

// Whoever has what the parameter server lacks pushes it.
FlushPlans Engine::flush(Arena&& arena) {
  FlushPlans plans;
  plans.arena = std::move(arena);
  plans.iteration = iteration_;
  const bool prepared = prepared_;
  check_in();
  plans.workers.resize(workers());
  if (staleness_) {
    give_all();
  } else if (!push_trained_) {
    owe_all();
  }
  flush_queue_.clear();
  trained_.clear();
  for (unsigned j = 0; j < workers(); ++j) {
    owed_[j].write(plans.arena, plans.workers[j].rows, plans.workers[j].gradients);
  }
  place_slots(plans);
  if (prepared) check_out();
  return plans;
}

// What any iteration has trained is to be pushed.
void Engine::owe_all() {
  std::vector<RowNumber> numbers;
  for (unsigned j = 0; j < workers(); ++j) {
    const CacheMirror& cache = *caches_[j];
    for (SlotIndex slot = 0; slot < cache.slots(); ++slot) {
      const RowNumber number = cache.copies[slot].row;
      if (number == kNoRow) continue;
      const RowState& row = index_[number];
      if (!row.holders.contains(j)) continue;
      const bool replica = row.replicated && replication_.unpushed(row) && replication_.home(row.id) == j;
      if (row.kind != kOwned && row.kind != kSplit && !replica) continue;
      owe(j, number, slot);
      numbers.push_back(number);
    }
  }
  settle(numbers);
  replication_.flush(iteration_);
}

// What this iteration has trained is to be pushed in the next one. All rows are clean as they will be then, so that
// whatever decides on the next batch knows them so.
void Engine::owe_trained(const IterationPlans& plans) {
  for (unsigned j = 0; j < workers(); ++j) {
    const SlotIndex* slot = plans.arena.u32.data() + plans.workers[j].unique_slots.begin;
    for (const Need& need : lists_[j].needs) owe(j, batch_.row_numbers[need.row], *slot++);
  }
  settle(batch_.row_numbers);
}

// The worker is to push what it has of an owned or split row.
void Engine::owe(unsigned worker, RowNumber number, SlotIndex slot) {
  const RowState& row = index_[number];
  OwedPushes& owed = owed_[worker];
  (row.kind == kSplit ? owed.gradients : owed.rows)
      .emplace_back(row, sizes_.of_row(row.id), directory_.contributors(row), slot, iteration_);
}

// Rows are clean as soon as all that is owed of them is pushed; some may be named several times.
void Engine::settle(const std::vector<RowNumber>& numbers) {
  SorterById<std::vector<TransferRow>> sorter;
  for (unsigned j = 0; j < workers(); ++j) {
    owed_[j].sort(sorter);
    Slots outdated;
    for (const TransferRow& gradient : owed_[j].gradients) outdated.push_back(gradient.slot);
    caches_[j]->policy->outdate(outdated.data(), outdated.size(), iteration_);
  }
  for (const RowNumber number : numbers) {
    RowState& row = index_[number];
    if (row.kind == kOwned) row.kind = kClean;
    if (row.kind == kSplit) row.kind = kSettled;
    directory_.tidy(row);
  }
}

std::size_t Engine::cache_bytes() const {
  std::size_t bytes = directory_.memory_bytes();
  for (const auto& cache : caches_) bytes += cache->memory_bytes();
  return bytes;
}

std::size_t Engine::memory_bytes() const {
  return index_.memory_bytes() + hot_rows_.memory_bytes() + replication_.memory_bytes() + row_limit_.memory_bytes() +
         history_.memory_bytes() + cache_bytes() + finder_.memory_bytes() + batch_.memory_bytes() +
         flush_queue_.memory_bytes() + (staleness_ ? staleness_->memory_bytes() : 0);
}

}  // namespace esd
