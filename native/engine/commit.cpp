// One iteration of the state machine (DESIGN section 2): update pushes, evictions, pulls, training.
#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "engine/engine.h"

namespace esd {

using Numbers = std::vector<std::uint32_t>;

static unsigned first_worker(WorkerMask mask) { return static_cast<unsigned>(__builtin_ctzll(mask)); }

// Calls `visit(worker)` for every worker of a set, in slot order.
template <typename Visit>
static void for_each_worker(WorkerMask mask, Visit visit) {
  for (; mask; mask &= mask - 1) visit(first_worker(mask));
}

// A copy whose row others need.
struct RowPush {
  std::uint64_t id;
  std::uint32_t slot;
  std::int64_t version;  // full
};

// A copy that holds a partial gradient which others need.
struct GradientPush {
  RowPush row;
  WorkerMask contributors;
  std::uint32_t step;
};

// What one worker does in the iteration. Where there are two lists, [1] is of rows that may move early.
struct Part {
  Numbers positions;  // its samples
  Numbers needs;      // U_j, by number, ascending
  Slots slots;        // of its needs
  Slots pinned;       // those that were there before
  Slots losses;       // copies whose latest value, or partial gradient, it has and will not have
  std::vector<RowPush> row_pushes[2];
  std::vector<GradientPush> gradient_pushes[2];
  std::uint64_t row_push_size, gradient_push_size;  // of their rows together
  Numbers missing[2], pulls[2];  // places in its needs of rows that are not there, and of rows that it pulls
  std::uint64_t* ids;  // columns of the plan, while `resolve` fills them
  std::uint64_t* contributors;
  std::int64_t* versions;
};

class Commit {
 public:
  explicit Commit(Engine& engine) : engine_(engine), batch_(engine.batch_), parts_(engine.workers()) {}

  IterationPlans run(const std::int32_t* assignment, Arena&& arena) {
    now_ = engine_.iteration_;
    find_trainers(assignment);
    check_capacities();
    engine_.row_limit_.check(batch_);
    // Nothing has changed so far; from here on nothing is refused.
    engine_.sizes_.learn(batch_, engine_.index_.size());
    plans_.iteration = now_;
    plans_.fields = batch_.fields;
    plans_.arena = std::move(arena);
    plans_.workers.resize(engine_.workers());
    discarded_late_.assign(engine_.workers(), {});
    engine_.forget(plans_, discarded_late_);
    lay_out();
    resolve();
    std::size_t pulls = 0;
    for (unsigned j = 0; j < engine_.workers(); ++j) {
      serve(j);
      pulls += plans_.workers[j].pulls.ids.size;
    }
    train();
    engine_.lookups_ = lookups_;
    engine_.hits_ = lookups_ - pulls;
    ++engine_.iteration_;
    choose_hot_rows();
    return std::move(plans_);
  }

 private:
  // W_x of every id, and how many rows every worker needs.
  void find_trainers(const std::int32_t* assignment) {
    const int workers = static_cast<int>(engine_.workers());
    trainers_.assign(batch_.distinct(), 0);
    lookups_of_.assign(engine_.workers(), 0);
    for (Part& part : parts_) part.positions.clear();
    const std::uint32_t* numbers = batch_.numbers.data();
    for (std::size_t i = 0; i < batch_.samples; ++i, numbers += batch_.fields) {
      const std::int32_t worker = assignment[i];
      if (worker < 0 || worker >= workers) {
        throw std::invalid_argument("sample " + std::to_string(i) + " is assigned to worker " +
                                    std::to_string(worker) + ", it must be in 0.." + std::to_string(workers - 1));
      }
      const auto j = static_cast<unsigned>(worker);
      parts_[j].positions.push_back(static_cast<std::uint32_t>(i));
      std::size_t lookups = 0;
      for (std::size_t f = 0; f < batch_.fields; ++f) {
        const WorkerMask trainers = trainers_[numbers[f]];
        lookups += ~trainers >> j & 1;
        trainers_[numbers[f]] = trainers | worker_bit(j);
      }
      lookups_of_[j] += lookups;
    }
  }

  // Room that each worker needs, in units of row size.
  std::vector<std::uint64_t> needed_room() const {
    if (engine_.sizes_.uniform()) return {lookups_of_.begin(), lookups_of_.end()};
    std::vector<std::uint64_t> room(engine_.workers());
    for (std::size_t x = 0; x < batch_.distinct(); ++x) {
      for_each_worker(trainers_[x], [&](unsigned j) { room[j] += batch_.sizes[x]; });
    }
    return room;
  }

  void check_capacities() {
    if (now_ == kMaxVersion) throw std::length_error("the engine counts at most 2^30 - 1 iterations");
    const std::vector<std::uint64_t> room = needed_room();
    for (unsigned j = 0; j < engine_.workers(); ++j) {
      const std::uint32_t capacity = engine_.caches_[j]->capacity;
      if (room[j] <= capacity) continue;
      throw CacheTooSmall("worker " + std::to_string(j) + " caches " + std::to_string(capacity) +
                          (engine_.sizes_.uniform() ? " rows, iteration " : " units of row size, iteration ") +
                          std::to_string(now_) + " needs " + std::to_string(room[j]) +
                          ": give it at least as many by --cache-rows or --cache-ratio, or fewer samples");
    }
  }

  // Makes room for whatever `resolve` finds about each worker.
  void lay_out() {
    Arena& arena = plans_.arena;
    lookups_ = 0;
    for (unsigned j = 0; j < engine_.workers(); ++j) {
      const std::size_t lookups = lookups_of_[j];
      lookups_ += lookups;
      WorkerPlan& plan = plans_.workers[j];
      plan.unique_ids = add_column(arena.u64, lookups);
      plan.unique_contributors = add_column(arena.u64, lookups);
      plan.unique_versions = add_column(arena.i64, lookups);
    }
    for (unsigned j = 0; j < engine_.workers(); ++j) {
      Part& part = parts_[j];
      const WorkerPlan& plan = plans_.workers[j];
      part.ids = arena.u64.data() + plan.unique_ids.begin;
      part.contributors = arena.u64.data() + plan.unique_contributors.begin;
      part.versions = arena.i64.data() + plan.unique_versions.begin;
      for (Numbers* list : {&part.needs, &part.slots, &part.pinned, &part.missing[0], &part.missing[1],
                            &part.pulls[0], &part.pulls[1]}) {
        list->resize(lookups_of_[j]);
      }
      part.losses.clear();
      part.row_push_size = part.gradient_push_size = 0;
      for (const bool early : {false, true}) {
        part.row_pushes[early].clear();
        part.gradient_pushes[early].clear();
      }
    }
    ends_.assign(engine_.workers(), {});
  }

  // Everything about one id at a time: who pushes it because somebody else needs it, whose copies this iteration
  // outdates, and where those who train it have it.
  void resolve() {
    const CopyDirectory& directory = engine_.directory_;
    for (std::uint32_t x = 0; x < batch_.distinct(); ++x) {
      if (x + kAhead < batch_.distinct()) directory.prefetch(batch_.states[x + kAhead]);
      const RowState& row = batch_.states[x];
      const WorkerMask trainers = trainers_[x], latest = row.latest();
      const bool early = !row.used_in(now_ - 1);
      find_pushes(x, row, trainers, early);
      for_each_worker(trainers, [&](unsigned j) {
        Part& part = parts_[j];
        Ends& end = ends_[j];
        const std::uint32_t i = end.needs++;
        const std::uint32_t slot = directory.slot(row, j);
        const bool missing = slot == kNone, pulls = !(latest >> j & 1);
        part.needs[i] = x;
        part.ids[i] = row.id;
        part.contributors[i] = trainers;
        part.versions[i] = row.full_version();
        // Whether a row is there can hardly be predicted, so nothing branches on it.
        part.slots[i] = part.pinned[end.pinned] = slot;
        part.missing[early][end.missing[early]] = part.pulls[early][end.pulls[early]] = i;
        end.pinned += !missing;
        end.missing[early] += missing;
        end.pulls[early] += pulls;
      });
    }
    for (unsigned j = 0; j < engine_.workers(); ++j) {
      parts_[j].pinned.resize(ends_[j].pinned);
      for (const bool early : {false, true}) {
        parts_[j].missing[early].resize(ends_[j].missing[early]);
        parts_[j].pulls[early].resize(ends_[j].pulls[early]);
      }
    }
  }

  void find_pushes(std::uint32_t x, const RowState& row, WorkerMask trainers, bool early) {
    const CopyDirectory& directory = engine_.directory_;
    const WorkerMask others = row.mask & ~trainers;
    if (row.kind == kOwned) {
      if (!(trainers & ~row.mask)) return;
      const unsigned owner = first_worker(row.mask);
      const std::uint32_t slot = directory.slot(row, owner);
      parts_[owner].row_pushes[early].push_back({row.id, slot, row.full_version()});
      parts_[owner].row_push_size += batch_.size(x);
      if (others) parts_[owner].losses.push_back(slot);
    } else if (row.kind == kSplit) {
      const WorkerMask contributors = directory.contributors(row);
      for_each_worker(row.mask, [&](unsigned j) {
        const std::uint32_t slot = directory.slot(row, j);
        const RowPush push{row.id, slot, row.full_version()};
        parts_[j].gradient_pushes[early].push_back({push, contributors, row.last_use + 1});
        parts_[j].gradient_push_size += batch_.size(x);
        if (others >> j & 1) parts_[j].losses.push_back(slot);
      });
    } else if (row.kind == kClean) {
      for_each_worker(others, [&](unsigned j) { parts_[j].losses.push_back(directory.slot(row, j)); });
    }
  }

  void serve(unsigned worker) {
    CacheMirror& cache = *engine_.caches_[worker];
    Part& part = parts_[worker];
    WorkerPlan& plan = plans_.workers[worker];
    push_updates(part, plan);
    prefetch(cache, part.losses);
    cache.policy->outdate(part.losses, now_);
    prefetch(cache, part.pinned);
    for (const std::uint32_t slot : part.pinned) cache.copies[slot].pinned = true;

    const std::uint64_t room = size_of(part.needs, part.missing[0]) + size_of(part.needs, part.missing[1]);
    evict(worker, cache, plan, room > cache.free() ? room - cache.free() : 0);
    cache.filled += room;
    place(worker, cache, part);
    cache.policy->use(part.pinned, part.slots, now_);

    pull(part, plan);
    describe_samples(part, plan);
  }

  static void prefetch(const CacheMirror& cache, const Slots& slots) {
    for (const std::uint32_t slot : slots) __builtin_prefetch(&cache.copies[slot], 1);
  }

  void push_updates(const Part& part, WorkerPlan& plan) {
    Arena& arena = plans_.arena;
    plan.update_rows = add_transfers(arena, part.row_pushes[0].size() + part.row_pushes[1].size(),
                                     part.row_pushes[1].size());
    plan.update_rows.size = part.row_push_size;
    TransferWriter rows(arena, plan.update_rows);
    for (const bool early : {true, false}) {
      for (const RowPush& row : part.row_pushes[early]) rows.write(early, row.id, row.slot, row.version);
    }

    plan.update_gradients = add_gradients(arena, part.gradient_pushes[0].size() + part.gradient_pushes[1].size(),
                                          part.gradient_pushes[1].size());
    plan.update_gradients.size = part.gradient_push_size;
    TransferWriter gradients(arena, plan.update_gradients);
    for (const bool early : {true, false}) {
      for (const auto& [row, contributors, step] : part.gradient_pushes[early]) {
        const std::size_t at = gradients.write(early, row.id, row.slot, row.version);
        arena.u64[plan.update_gradients.contributors.begin + at] = contributors;
        arena.i64[plan.update_gradients.steps.begin + at] = step;
      }
    }
  }

  // Of the rows at some places in `needs` together.
  std::uint64_t size_of(const Numbers& needs, const Numbers& places) const {
    if (engine_.sizes_.uniform()) return places.size();
    std::uint64_t size = 0;
    for (const std::uint32_t i : places) size += batch_.sizes[needs[i]];
    return size;
  }

  // Chooses copies to leave until `room` is made.
  void choose_victims(CacheMirror& cache, std::uint64_t room) {
    victims_.clear();
    if (engine_.sizes_.uniform()) return cache.policy->choose(static_cast<std::uint32_t>(room), victims_);
    for (std::uint64_t made = 0; made < room; made += engine_.sizes_[cache.copies[victims_.back()].row]) {
      cache.policy->choose(1, victims_);
    }
  }

  // Makes copies leave. Their slots join the vacant ones, those of rows that the previous iteration trains last: from
  // `early_vacant_` on they are free only when it ends.
  void evict(unsigned worker, CacheMirror& cache, WorkerPlan& plan, std::uint64_t room) {
    choose_victims(cache, room);
    transfers_.clear();
    gradients_.clear();
    drops_.clear();
    vacant_ = cache.vacant;
    late_vacant_ = discarded_late_[worker];
    for (std::size_t i = 0; i < victims_.size(); ++i) {
      if (i + kAhead < victims_.size()) engine_.index_.prefetch(cache.copies[victims_[i + kAhead]].row);
      const std::uint32_t slot = victims_[i];
      const Copy& copy = cache.copies[slot];
      RowState& row = state_of(copy.row);
      // An outdated copy owes nothing, whatever the row's state: others have trained it since, or will now.
      const bool owes = !copy.outdated && row.kind != kClean;
      const bool split = owes && row.kind == kSplit;
      const WorkerMask contributors = split ? engine_.directory_.contributors(row) : 0;
      const Transfer departure = describe_departure(row, engine_.sizes_[copy.row], contributors, slot, now_);
      cache.filled -= departure.size;
      (!owes ? drops_ : split ? gradients_ : transfers_).push_back(departure);
      (departure.early ? vacant_ : late_vacant_).push_back(slot);
      row.mask &= ~worker_bit(worker);
      if (row.mask == 0) row.kind = kClean;
      engine_.directory_.remove(row, worker);
    }
    early_vacant_ = vacant_.size();
    vacant_.insert(vacant_.end(), late_vacant_.begin(), late_vacant_.end());
    plan.evict_rows = append_rows(plans_.arena, transfers_);
    plan.evict_gradients = append_gradients(plans_.arena, gradients_);
    plan.drops = append_rows(plans_.arena, drops_);
  }

  RowState& state_of(std::uint32_t row_number) {
    RowState& row = engine_.index_[row_number];
    return row.place == kInBatch ? engine_.batch_.states[row.slot] : row;
  }

  // Gives missing rows their slots, those never used before vacant ones. Rows that the previous iteration does not
  // train come first: they and the slots that are free early belong together. Where such slots run out, early pulls
  // become late ones.
  void place(unsigned worker, CacheMirror& cache, Part& part) {
    const std::size_t missing = part.missing[0].size() + part.missing[1].size();
    const std::size_t fresh = missing > vacant_.size() ? missing - vacant_.size() : 0;
    std::size_t placed = 0;
    for (const bool early : {true, false}) {
      for (const std::uint32_t i : part.missing[early]) {
        const std::uint32_t x = part.needs[i];
        const std::uint32_t slot = placed < fresh ? cache.slots() : vacant_[placed - fresh];
        if (placed++ < fresh) cache.copies.emplace_back();
        cache.copies[slot] = {batch_.rows[x], use_stamp(now_), 0, 0, false, true};
        part.slots[i] = slot;
        engine_.directory_.add(engine_.batch_.states[x], worker, slot);
      }
    }
    const std::size_t taken = missing - fresh;
    cache.vacant.assign(vacant_.begin() + static_cast<std::ptrdiff_t>(taken), vacant_.end());
    for (const std::uint32_t slot : cache.vacant) cache.copies[slot].row = kNone;

    const std::size_t early_slots = fresh + early_vacant_;
    if (part.missing[1].size() > early_slots) delay_pulls(part, early_slots);
  }

  // Missing rows from place `from` of their list on cannot be pulled early.
  static void delay_pulls(Part& part, std::size_t from) {
    const auto first = part.missing[1].begin() + static_cast<std::ptrdiff_t>(from), last = part.missing[1].end();
    Numbers early, late;
    std::set_difference(part.pulls[1].begin(), part.pulls[1].end(), first, last, std::back_inserter(early));
    std::merge(part.pulls[0].begin(), part.pulls[0].end(), first, last, std::back_inserter(late));
    part.pulls[1] = std::move(early);
    part.pulls[0] = std::move(late);
  }

  void pull(const Part& part, WorkerPlan& plan) {
    Arena& arena = plans_.arena;
    plan.pulls = add_transfers(arena, part.pulls[0].size() + part.pulls[1].size(), part.pulls[1].size());
    TransferWriter writer(arena, plan.pulls);
    const std::uint64_t* ids = arena.u64.data() + plan.unique_ids.begin;
    const std::int64_t* versions = arena.i64.data() + plan.unique_versions.begin;
    for (const bool early : {true, false}) {
      for (const std::uint32_t i : part.pulls[early]) {
        writer.write(early, ids[i], part.slots[i], versions[i]);
      }
    }
    plan.pulls.size = size_of(part.needs, part.pulls[0]) + size_of(part.needs, part.pulls[1]);
  }

  void describe_samples(const Part& part, WorkerPlan& plan) {
    Arena& arena = plans_.arena;
    plan.unique_slots = add_column(arena.u32, part.slots.size());
    std::copy(part.slots.begin(), part.slots.end(), arena.u32.data() + plan.unique_slots.begin);
    plan.positions = add_column(arena.u32, part.positions.size());
    std::copy(part.positions.begin(), part.positions.end(), arena.u32.data() + plan.positions.begin);

    place_in_needs_.resize(batch_.distinct());
    for (std::uint32_t i = 0; i < part.needs.size(); ++i) place_in_needs_[part.needs[i]] = i;
    plan.inverse = add_column(arena.u32, part.positions.size() * batch_.fields);
    std::uint32_t* inverse = arena.u32.data() + plan.inverse.begin;
    for (const std::uint32_t position : part.positions) {
      const std::uint32_t* numbers = batch_.numbers.data() + position * batch_.fields;
      for (std::size_t f = 0; f < batch_.fields; ++f) *inverse++ = place_in_needs_[numbers[f]];
    }
  }

  // The rows' new states, and back to the state index with them.
  void train() {
    for (std::uint32_t x = 0; x < batch_.distinct(); ++x) {
      if (x + kAhead < batch_.distinct()) {
        engine_.index_.prefetch(batch_.rows[x + kAhead]);
        engine_.directory_.prefetch(batch_.states[x + kAhead]);
      }
      RowState row = batch_.states[x];
      row.mask = trainers_[x];
      row.kind = (trainers_[x] & (trainers_[x] - 1)) ? kSplit : kOwned;
      engine_.reuse_.train(row.version);
      row.version += 1;
      row.last_use = now_;
      if (row.kind == kSplit) engine_.directory_.set_contributors(row, trainers_[x]);
      engine_.directory_.tidy(row);
      engine_.index_[batch_.rows[x]] = row;
    }
    engine_.prepared_ = false;
  }

  void choose_hot_rows() {
    if (engine_.policy_ != kStatic || engine_.iteration_ != HotRows::kProfileIterations) return;
    const auto& caches = engine_.cache_sizes_;
    engine_.hot_rows_.choose(engine_.index_, engine_.sizes_, *std::min_element(caches.begin(), caches.end()));
  }

  static constexpr std::size_t kAhead = 24;  // rows prefetched

  // How far the lists of a part have been written.
  struct Ends {
    std::uint32_t needs, pinned, missing[2], pulls[2];
  };

  Engine& engine_;
  const PreparedBatch& batch_;
  std::uint32_t now_ = 0;
  IterationPlans plans_;
  std::uint64_t lookups_ = 0;

  // What follows is kept from run to run for its memory only.

  // By number.
  std::vector<WorkerMask> trainers_;  // W_x

  // By worker.
  std::vector<std::size_t> lookups_of_;  // size of U_j
  std::vector<Part> parts_;
  std::vector<Ends> ends_;
  std::vector<Slots> discarded_late_;  // slots of forgotten rows that the previous iteration trains

  // Of the worker being served.
  Slots victims_, vacant_, late_vacant_;
  std::size_t early_vacant_ = 0;
  std::vector<Transfer> transfers_, gradients_, drops_;
  Numbers place_in_needs_;  // by number
};

Engine::Engine(std::vector<std::uint32_t> cache_sizes, std::string policy, std::vector<std::uint32_t> field_sizes,
               std::uint64_t max_rows)
    : cache_sizes_(std::move(cache_sizes)), policy_(std::move(policy)), sizes_(std::move(field_sizes)),
      row_limit_(max_rows), caches_(make_caches()), directory_(workers()), commit_(std::make_unique<Commit>(*this)) {}

Engine::~Engine() = default;

IterationPlans Engine::commit(const std::int32_t* assignment, Arena&& arena) {
  batch();  // refuses when none is prepared
  return commit_->run(assignment, std::move(arena));
}

}  // namespace esd
