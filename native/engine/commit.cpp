// One iteration of the state machine (DESIGN section 2): update pushes, evictions, pulls, training.
#include <algorithm>
#include <string>
#include <utility>

#include "engine/engine.h"

namespace esd {

using Numbers = std::vector<std::uint32_t>;  // of distinct ids of the batch, or of its samples; ascending

static unsigned first_worker(WorkerMask mask) { return static_cast<unsigned>(__builtin_ctzll(mask)); }

// Calls `visit(worker)` for every worker of a set, in slot order.
template <typename Visit>
static void for_each_worker(WorkerMask mask, Visit visit) {
  for (; mask; mask &= mask - 1) visit(first_worker(mask));
}

class Commit {
 public:
  explicit Commit(Engine& engine)
      : engine_(engine), batch_(engine.batch_), positions_(engine.workers()), needs_(engine.workers()),
        row_pushes_(engine.workers()), gradient_pushes_(engine.workers()), losses_(engine.workers()) {}

  IterationPlans run(const std::int32_t* assignment, Arena&& arena) {
    now_ = engine_.iteration_;
    find_trainers(assignment);
    check_capacities();
    // Nothing has changed so far; from here on nothing is refused.
    engine_.sizes_.learn(batch_, engine_.index_.size());
    plans_.iteration = now_;
    plans_.fields = batch_.fields;
    plans_.arena = std::move(arena);
    plans_.workers.resize(engine_.workers());
    find_update_pushes();
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
  // W_x of every id and U_j of every worker.
  void find_trainers(const std::int32_t* assignment) {
    const int workers = static_cast<int>(engine_.workers());
    trainers_.assign(batch_.distinct(), 0);
    for (unsigned j = 0; j < engine_.workers(); ++j) {
      positions_[j].clear();
      needs_[j].clear();
    }
    const std::uint32_t* numbers = batch_.numbers.data();
    for (std::size_t i = 0; i < batch_.samples; ++i, numbers += batch_.fields) {
      const std::int32_t worker = assignment[i];
      if (worker < 0 || worker >= workers) {
        throw std::invalid_argument("sample " + std::to_string(i) + " is assigned to worker " +
                                    std::to_string(worker) + ", it must be in 0.." + std::to_string(workers - 1));
      }
      positions_[static_cast<unsigned>(worker)].push_back(static_cast<std::uint32_t>(i));
      const WorkerMask bit = worker_bit(static_cast<unsigned>(worker));
      for (std::size_t f = 0; f < batch_.fields; ++f) trainers_[numbers[f]] |= bit;
    }
    for (std::uint32_t x = 0; x < trainers_.size(); ++x) {
      for_each_worker(trainers_[x], [&](unsigned j) { needs_[j].push_back(x); });
    }
  }

  // Of all rows together.
  std::uint64_t size_of(const Numbers& rows) const {
    if (engine_.sizes_.uniform()) return rows.size();
    std::uint64_t size = 0;
    for (const std::uint32_t x : rows) size += batch_.sizes[x];
    return size;
  }

  // Of the rows at some places in `needs`.
  std::uint64_t size_of(const Numbers& needs, const Numbers& places) const {
    if (engine_.sizes_.uniform()) return places.size();
    std::uint64_t size = 0;
    for (const std::uint32_t i : places) size += batch_.sizes[needs[i]];
    return size;
  }

  void check_capacities() {
    if (now_ == kMaxVersion) throw std::length_error("the engine counts at most 2^30 - 1 iterations");
    lookups_ = 0;
    for (unsigned j = 0; j < engine_.workers(); ++j) {
      lookups_ += needs_[j].size();
      const std::uint32_t capacity = engine_.caches_[j]->capacity;
      const std::uint64_t needed = size_of(needs_[j]);
      if (needed <= capacity) continue;
      throw CacheTooSmall("worker " + std::to_string(j) + " caches " + std::to_string(capacity) +
                          (engine_.sizes_.uniform() ? " rows, iteration " : " units of row size, iteration ") +
                          std::to_string(now_) + " needs " + std::to_string(needed) +
                          ": give it at least as many by --cache-rows or --cache-ratio, or fewer samples");
    }
  }

  // Who pushes what because somebody else needs it, and whose copies this iteration outdates.
  void find_update_pushes() {
    for (unsigned j = 0; j < engine_.workers(); ++j) {
      row_pushes_[j].clear();
      gradient_pushes_[j].clear();
      losses_[j].clear();
    }
    latest_.resize(batch_.distinct());
    early_.resize(batch_.distinct());
    for (std::uint32_t x = 0; x < batch_.distinct(); ++x) {
      const RowState& row = batch_.states[x];
      engine_.directory_.prefetch(row);  // for those who ask for its slots
      const WorkerMask others = row.mask & ~trainers_[x];
      if (row.kind == kOwned) {
        if (trainers_[x] & ~row.mask) row_pushes_[first_worker(row.mask)].push_back(x);
        if (others) losses_[first_worker(row.mask)].push_back(x);
      } else if (row.kind == kSplit) {
        for_each_worker(row.mask, [&](unsigned j) { gradient_pushes_[j].push_back(x); });
        for_each_worker(others, [&](unsigned j) { losses_[j].push_back(x); });
      } else if (row.kind == kClean) {
        for_each_worker(others, [&](unsigned j) { losses_[j].push_back(x); });
      }
      latest_[x] = row.latest();
      early_[x] = !row.used_in(now_ - 1);
    }
  }

  void serve(unsigned worker) {
    CacheMirror& cache = *engine_.caches_[worker];
    WorkerPlan& plan = plans_.workers[worker];
    push_updates(worker, cache, plan);

    const Numbers& needs = needs_[worker];
    find_copies(worker, needs, cache);
    const std::size_t missing = early_missing_.size() + late_missing_.size();
    const std::uint64_t room = size_of(needs, early_missing_) + size_of(needs, late_missing_);
    evict(worker, cache, plan, room > cache.free() ? room - cache.free() : 0);
    cache.filled += room;
    early_place_.assign(needs.size(), true);
    vacant_taken_ = 0;
    fresh_ = missing > vacant_.size() ? missing - vacant_.size() : 0;
    for (const std::uint32_t i : early_missing_) place(worker, needs, i, cache);
    for (const std::uint32_t i : late_missing_) place(worker, needs, i, cache);
    cache.vacant.assign(vacant_.begin() + static_cast<std::ptrdiff_t>(vacant_taken_), vacant_.end());
    for (const std::uint32_t slot : cache.vacant) cache.copies[slot].row = kNone;
    cache.policy->use(pinned_, slots_, now_);

    pull(worker, needs, plan);
    describe_samples(worker, needs, plan);
  }

  void push_updates(unsigned worker, CacheMirror& cache, WorkerPlan& plan) {
    const CopyDirectory& directory = engine_.directory_;
    transfers_.clear();
    for (const std::uint32_t x : row_pushes_[worker]) {
      const RowState& row = batch_.states[x];
      transfers_.push_back(describe_departure(row, batch_.size(x), 0, directory.slot(row, worker), now_));
    }
    plan.update_rows = append_rows(plans_.arena, transfers_);

    gradients_.clear();
    for (const std::uint32_t x : gradient_pushes_[worker]) {
      const RowState& row = batch_.states[x];
      gradients_.push_back(describe_departure(row, batch_.size(x), directory.contributors(row),
                                              directory.slot(row, worker), now_));
    }
    plan.update_gradients = append_gradients(plans_.arena, gradients_);

    slots_.clear();
    for (const std::uint32_t x : losses_[worker]) slots_.push_back(directory.slot(batch_.states[x], worker));
    prefetch(cache, slots_);
    cache.policy->outdate(slots_, now_);
  }

  // The slots of the worker's needs; pins the copies that are there, and lists by place in `needs` what is missing.
  // Whether a row is there can hardly be predicted, so nothing branches on it.
  void find_copies(unsigned worker, const Numbers& needs, CacheMirror& cache) {
    slots_.resize(needs.size());
    pinned_.resize(needs.size());
    early_missing_.resize(needs.size());
    late_missing_.resize(needs.size());
    std::size_t pinned = 0, early_missing = 0, late_missing = 0;
    for (std::uint32_t i = 0; i < needs.size(); ++i) {
      const std::uint32_t slot = engine_.directory_.slot(batch_.states[needs[i]], worker);
      const bool missing = slot == kNone, early = early_[needs[i]];
      slots_[i] = pinned_[pinned] = slot;
      early_missing_[early_missing] = late_missing_[late_missing] = i;
      pinned += !missing;
      early_missing += missing & early;
      late_missing += missing & !early;
    }
    pinned_.resize(pinned);
    early_missing_.resize(early_missing);
    late_missing_.resize(late_missing);
    prefetch(cache, pinned_);
    for (const std::uint32_t slot : pinned_) cache.copies[slot].pinned = true;
  }

  static void prefetch(const CacheMirror& cache, const Slots& slots) {
    for (const std::uint32_t slot : slots) __builtin_prefetch(&cache.copies[slot], 1);
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
    late_vacant_.clear();
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

  // Gives a missing row a slot, one never used before a vacant one. Rows that the previous iteration does not train
  // come first: they and the slots that are free early belong together.
  void place(unsigned worker, const Numbers& needs, std::uint32_t i, CacheMirror& cache) {
    const Copy copy{batch_.rows[needs[i]], use_stamp(now_), 0, 0, false, true};
    if (fresh_ > 0) {
      --fresh_;
      slots_[i] = cache.slots();
      cache.copies.push_back(copy);
    } else {
      early_place_[i] = vacant_taken_ < early_vacant_;
      slots_[i] = vacant_[vacant_taken_++];
      cache.copies[slots_[i]] = copy;
    }
    engine_.directory_.add(engine_.batch_.states[needs[i]], worker, slots_[i]);
  }

  void pull(unsigned worker, const Numbers& needs, WorkerPlan& plan) {
    early_pulls_.resize(needs.size());
    late_pulls_.resize(needs.size());
    std::size_t early_pulls = 0, late_pulls = 0;
    for (std::uint32_t i = 0; i < needs.size(); ++i) {
      const bool pulls = !(latest_[needs[i]] >> worker & 1), early = early_[needs[i]] & early_place_[i];
      early_pulls_[early_pulls] = late_pulls_[late_pulls] = i;
      early_pulls += pulls & early;
      late_pulls += pulls & !early;
    }
    early_pulls_.resize(early_pulls);
    late_pulls_.resize(late_pulls);

    plan.pulls = add_transfers(plans_.arena, early_pulls + late_pulls, early_pulls);
    TransferWriter writer(plans_.arena, plan.pulls);
    const auto write = [&](std::uint32_t i, bool early) {
      const std::uint32_t x = needs[i];
      writer.write(early, batch_.ids[x], slots_[i], batch_.states[x].version);
    };
    for (const std::uint32_t i : early_pulls_) write(i, true);
    for (const std::uint32_t i : late_pulls_) write(i, false);
    plan.pulls.size = size_of(needs, early_pulls_) + size_of(needs, late_pulls_);
  }

  void describe_samples(unsigned worker, const Numbers& needs, WorkerPlan& plan) {
    Arena& arena = plans_.arena;
    plan.unique_ids = add_column(arena.u64, needs.size());
    plan.unique_contributors = add_column(arena.u64, needs.size());
    plan.unique_versions = add_column(arena.i64, needs.size());
    place_in_needs_.resize(batch_.distinct());
    for (std::uint32_t i = 0; i < needs.size(); ++i) {
      const std::uint32_t x = needs[i];
      arena.u64[plan.unique_ids.begin + i] = batch_.ids[x];
      arena.u64[plan.unique_contributors.begin + i] = trainers_[x];
      arena.i64[plan.unique_versions.begin + i] = batch_.states[x].version;
      place_in_needs_[x] = i;
    }
    plan.unique_slots = add_column(arena.u32, needs.size());
    std::copy(slots_.begin(), slots_.end(), arena.u32.data() + plan.unique_slots.begin);

    const Numbers& positions = positions_[worker];
    plan.positions = add_column(arena.u32, positions.size());
    std::copy(positions.begin(), positions.end(), arena.u32.data() + plan.positions.begin);
    plan.inverse = add_column(arena.u32, positions.size() * batch_.fields);
    std::uint32_t* inverse = arena.u32.data() + plan.inverse.begin;
    for (const std::uint32_t position : positions) {
      const std::uint32_t* numbers = batch_.numbers.data() + position * batch_.fields;
      for (std::size_t f = 0; f < batch_.fields; ++f) *inverse++ = place_in_needs_[numbers[f]];
    }
  }

  void train() {
    for (std::uint32_t x = 0; x < batch_.distinct(); ++x) {
      RowState& row = engine_.batch_.states[x];
      row.mask = trainers_[x];
      row.kind = (trainers_[x] & (trainers_[x] - 1)) ? kSplit : kOwned;
      engine_.reuse_.train(row.version);
      row.version += 1;
      row.last_use = now_;
      if (row.kind == kSplit) engine_.directory_.set_contributors(row, trainers_[x]);
      engine_.directory_.tidy(row);
    }
    engine_.check_in();
  }

  void choose_hot_rows() {
    if (engine_.policy_ != kStatic || engine_.iteration_ != HotRows::kProfileIterations) return;
    const auto& caches = engine_.cache_sizes_;
    engine_.hot_rows_.choose(engine_.index_, engine_.sizes_, *std::min_element(caches.begin(), caches.end()));
  }

  static constexpr std::size_t kAhead = 24;  // victims prefetched

  Engine& engine_;
  const PreparedBatch& batch_;
  std::uint32_t now_ = 0;
  IterationPlans plans_;
  std::uint64_t lookups_ = 0;

  // What follows is kept from run to run for its memory only.

  // By number.
  std::vector<WorkerMask> trainers_;     // W_x
  std::vector<WorkerMask> latest_;       // who needs no pull
  std::vector<std::uint8_t> early_;      // the previous iteration does not train the row

  // By worker.
  std::vector<Numbers> positions_;  // its samples
  std::vector<Numbers> needs_;      // U_j
  std::vector<Numbers> row_pushes_, gradient_pushes_;
  std::vector<Numbers> losses_;     // rows whose latest value, or partial gradient, it has and will not have

  // Of the worker being served.
  Slots slots_;                           // of its needs
  Slots pinned_;                          // those that were there before
  Numbers early_missing_, late_missing_;  // places in its needs
  Numbers early_pulls_, late_pulls_;      // places in its needs
  Slots victims_, vacant_, late_vacant_;
  std::size_t early_vacant_ = 0, vacant_taken_ = 0;
  std::size_t fresh_ = 0;  // slots to be used for the first time
  std::vector<std::uint8_t> early_place_;  // by need: its slot is free early
  std::vector<Transfer> transfers_, gradients_, drops_;
  Numbers place_in_needs_;  // by number
};

Engine::Engine(std::vector<std::uint32_t> cache_sizes, std::string policy, std::vector<std::uint32_t> field_sizes)
    : cache_sizes_(std::move(cache_sizes)), policy_(std::move(policy)), sizes_(std::move(field_sizes)),
      caches_(make_caches()), directory_(workers()), commit_(std::make_unique<Commit>(*this)) {}

Engine::~Engine() = default;

IterationPlans Engine::commit(const std::int32_t* assignment, Arena&& arena) {
  batch();  // refuses when none is prepared
  return commit_->run(assignment, std::move(arena));
}

}  // namespace esd
