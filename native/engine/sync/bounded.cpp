#include "engine/sync/bounded.h"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "engine/memory/sort_by_id.h"
#include "engine/rows/row_state.h"

namespace esd {

StalenessBounds Bounded::checked(const Options& options) {
  const std::uint32_t most = std::max(options.bounds.pull, options.bounds.push);
  if (most <= StalenessBounds::kMost) return options.bounds;
  throw std::invalid_argument("a staleness bound is " + std::to_string(most) + ", the limit is " +
                              std::to_string(StalenessBounds::kMost));
}

std::vector<bool> Bounded::checked(std::vector<bool> additive, std::size_t tables) {
  if (additive.empty()) additive.resize(tables);
  if (additive.size() == tables) return additive;
  throw std::invalid_argument(std::to_string(additive.size()) + " tables are additive or not, there are " +
                              std::to_string(tables));
}

void Bounded::begin(const std::int64_t*, IterationPlans&) { staleness_.grow(state_.index.size()); }

// Nothing is pushed before there is room: what the bounds ask for is carried out in `moved`. What others train does not
// make a copy useless at once.
void Bounded::write_pushes(unsigned worker, WorkerPlan&, Arena&) { state_.lists[worker].outdated.clear(); }

// A copy that leaves owes the updates that its worker has kept to itself.
void Bounded::make_room(unsigned worker, Replacement& replacement, const Slots& late_slots, Arena& arena,
                        WorkerPlan& plan) {
  replacement.run(worker, late_slots, arena, plan, [&](SlotIndex slot, const Copy& copy, const RowState& row) {
    if (!staleness_.unpushed(worker, slot)) return kDropped;
    staleness_.push(worker, slot, copy.row, copy.table, row.last_use);
    return kGradientPushed;
  });
}

// What the worker has gathered of a row goes out with the next plan.
void Bounded::give(unsigned worker, RowNumber number, SlotIndex slot) {
  staleness_.push(worker, slot, number, state_.caches[worker]->copies[slot].table, state_.state_of(number).last_use);
  given_[worker].emplace_back(number, slot);
}

// Carries out what the bounds ask for, when room is made and before anything is trained.
void Bounded::moved(IterationPlans& plans) {
  for (unsigned j = 0; j < state_.workers(); ++j) staleness_.grow(j, state_.caches[j]->slots());
  pull_spent_copies();
  staleness_.merge();
  for (unsigned j = 0; j < state_.workers(); ++j) {
    WorkerPlan& plan = plans.workers[j];
    list_given(j);
    owed_[j].write(plans.arena, plan.update_rows, plan.update_gradients);
    name_evicted(plan, plans.arena);
    name_copies(j, plan, plans.arena);
  }
  for (const RowNumber number : staleness_.pushed()) {
    if (state_.index[number].location != kInBatch) judge_copies(number, state_.index[number].holders);
  }
  staleness_.end_merge();
}

// A copy that is too far behind is pulled, and pushed before that. What is pushed puts the others of its row further
// behind, so this is repeated until it changes nothing.
void Bounded::pull_spent_copies() {
  std::vector<std::vector<bool>> pulled(state_.workers());
  for (unsigned j = 0; j < state_.workers(); ++j) {
    for (const Need& need : state_.lists[j].needs) pulled[j].push_back(need.slot == kNoSlot);
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (unsigned j = 0; j < state_.workers(); ++j) {
      for (std::size_t i = 0; i < pulled[j].size(); ++i) {
        const Need& need = state_.lists[j].needs[i];
        const RowNumber number = state_.batch.row_numbers[need.row];
        if (pulled[j][i] || staleness_.fresh(j, need.slot, number)) continue;
        pulled[j][i] = true;
        if (!staleness_.unpushed(j, need.slot)) continue;
        give(j, number, need.slot);
        changed = true;
      }
    }
  }
  for (unsigned j = 0; j < state_.workers(); ++j) {
    NeedList more[2];  // by Timing, besides those whose copies were too far behind before
    for (std::size_t i = 0; i < pulled[j].size(); ++i) {
      const Need& need = state_.lists[j].needs[i];
      if (pulled[j][i] && !need.pulled) more[need.timing].push_back(static_cast<NeedIndex>(i));
    }
    for (const Timing timing : {kLate, kEarly}) {
      if (more[timing].empty()) continue;
      NeedList& pulls = state_.lists[j].pulls[timing];
      const auto before = static_cast<std::ptrdiff_t>(pulls.size());
      pulls.insert(pulls.end(), more[timing].begin(), more[timing].end());
      std::inplace_merge(pulls.begin(), pulls.begin() + before, pulls.end());
    }
  }
}

// Turns what a worker gives into gradients to push, in the order of ids.
void Bounded::list_given(unsigned worker) {
  for (const auto& [number, slot] : given_[worker]) {
    const RowState& row = state_.state_of(number);
    TransferRow gradient(row, state_.sizes.of_row(row.id), staleness_.pushers(number), slot, state_.iteration);
    gradient.version = first_version(row.life) + staleness_.version(number);
    owed_[worker].gradients.push_back(gradient);
    staleness_.name(worker, slot, number);
  }
  given_[worker].clear();
  SorterById<std::vector<TransferRow>> sorter;
  owed_[worker].sort(sorter);
}

// Gradients that leave with their copies: the version that they make, and with whom, is known only now.
void Bounded::name_evicted(const WorkerPlan& plan, Arena& arena) {
  const TransferSpans& evicted = plan.evict_gradients;
  for (std::size_t i = 0; i < evicted.ids.size; ++i) {
    const RowNumber number = state_.index.find(arena.u64[evicted.ids.begin + i]);
    arena.i64[evicted.versions.begin + i] = first_version(state_.state_of(number).life) + staleness_.version(number);
    arena.sets[evicted.contributors.begin + i] = staleness_.pushers(number);
  }
}

// Each worker trains rows for itself: those that it pulls at the server's version, others at that of its copy.
void Bounded::name_copies(unsigned worker, const WorkerPlan& plan, Arena& arena) {
  const WorkerLists& lists = state_.lists[worker];
  const SlotIndex* const slots = arena.u32.data() + plan.unique_slots.begin;
  for (const NeedList& pulls : lists.pulls) {
    for (const NeedIndex i : pulls) staleness_.pull(worker, slots[i], state_.batch.row_numbers[lists.needs[i].row]);
  }
  for (std::size_t i = 0; i < lists.needs.size(); ++i) {
    const RowState& row = state_.batch.states[lists.needs[i].row];
    arena.i64[plan.unique_versions.begin + i] = first_version(row.life) + staleness_.version(worker, slots[i]);
    arena.sets[plan.unique_contributors.begin + i] = WorkerSet::only(static_cast<int>(worker));
  }
}

// Counts what was read, and what was trained on it; what has gathered beyond the bound goes out with the next plan.
void Bounded::after(IterationPlans& plans) {
  StaleReads stale;
  const auto of_needs = [&](auto use) {
    for (unsigned j = 0; j < state_.workers(); ++j) {
      const SlotIndex* slot = plans.arena.u32.data() + plans.workers[j].unique_slots.begin;
      for (const Need& need : state_.lists[j].needs) use(j, *slot++, state_.batch.row_numbers[need.row]);
    }
  };
  of_needs([&](unsigned j, SlotIndex slot, RowNumber row) { stale.add(staleness_.missing(j, slot, row)); });
  of_needs([&](unsigned j, SlotIndex slot, RowNumber row) {
    staleness_.train(j, slot, row, plans.iteration);
    if (staleness_.due(j, slot)) give(j, row, slot);
  });
  for (std::size_t x = 0; x < state_.batch.distinct(); ++x) {
    judge_copies(state_.batch.row_numbers[x],
                 state_.batch.states[x].holders | state_.trainers[static_cast<BatchIndex>(x)]);
  }
  outdate_spent();
  plans.figures.assign(stale.reads.begin(), stale.reads.end());
  plans.figures.insert(plans.figures.end(), {stale.missing, stale.most_missing});
}

// The holders of a row are the workers that may train on their copies; `before` are those that could so far.
void Bounded::judge_copies(RowNumber number, WorkerSet before) {
  RowState& row = state_.index[number];
  row.kind = kClean;
  row.holders = {};
  const CopyDirectory::Entry entry = state_.directory.find(row);
  state_.directory.cached(row).for_each([&](int j) {
    const SlotIndex slot = entry.slot(static_cast<unsigned>(j));
    if (staleness_.fresh(static_cast<unsigned>(j), slot, number)) {
      row.holders.add(j);
    } else if (before.contains(j)) {
      spent_[static_cast<std::size_t>(j)].push_back(slot);
    }
  });
}

void Bounded::outdate_spent() {
  for (unsigned j = 0; j < state_.workers(); ++j) {
    state_.caches[j]->policy->outdate(spent_[j].data(), spent_[j].size(), state_.iteration);
    spent_[j].clear();
  }
}

// Whoever keeps something to himself pushes it. A copy that differs from the parameter server's is pulled before it is
// used again: so what is trained after a checkpoint depends on nothing that a checkpoint does not hold.
void Bounded::flush() {
  const auto of_copies = [&](auto use) {
    for (unsigned j = 0; j < state_.workers(); ++j) {
      for (SlotIndex slot = 0; slot < state_.caches[j]->slots(); ++slot) {
        const RowNumber number = state_.caches[j]->copies[slot].row;
        if (number != kNoRow) use(j, slot, number);
      }
    }
  };
  of_copies([&](unsigned j, SlotIndex slot, RowNumber number) {
    if (staleness_.unpushed(j, slot)) give(j, number, slot);
  });
  staleness_.merge();
  for (unsigned j = 0; j < state_.workers(); ++j) list_given(j);
  staleness_.end_merge();
  of_copies([&](unsigned j, SlotIndex slot, RowNumber number) { staleness_.settle(j, slot, number); });
  of_copies([&](unsigned, SlotIndex, RowNumber number) { judge_copies(number, state_.index[number].holders); });
  outdate_spent();
  for (RowNumber number = 0; number < state_.index.size(); ++number) {
    RowState& row = state_.index[number];
    if (row.location != kUnused && row.version > 0) row.version = staleness_.version(number) & kMaxVersion;
  }
}

void Bounded::forget(const std::vector<RowNumber>& rows) {
  Sync::forget(rows);
  std::vector<RowNumber> forgotten = rows;
  std::sort(forgotten.begin(), forgotten.end());
  staleness_.forget(forgotten);
  for (auto& given : given_) {
    const auto leaves = [&](const auto& each) {
      return std::binary_search(forgotten.begin(), forgotten.end(), each.first);
    };
    given.erase(std::remove_if(given.begin(), given.end(), leaves), given.end());
  }
}

SavedSync Bounded::save() const {
  for (const auto& given : given_) {
    if (!given.empty()) throw std::logic_error("gradients are kept back; call flush before snapshot");
  }
  return Sync::save();
}

// Takes the rows and copies of a snapshot as they are after a flush.
void Bounded::restore(SavedSync&& saved) {
  Sync::restore(std::move(saved));
  staleness_.clear();
  given_.assign(state_.workers(), {});
  staleness_.grow(state_.index.size());
  for (RowNumber number = 0; number < state_.index.size(); ++number) {
    RowState& row = state_.index[number];
    if (row.location == kUnused) continue;
    row.holders = row.latest();
    row.kind = kClean;
    staleness_.restore(number, row.version);
  }
  for (unsigned j = 0; j < state_.workers(); ++j) {
    staleness_.grow(j, state_.caches[j]->slots());
    for (SlotIndex slot = 0; slot < state_.caches[j]->slots(); ++slot) {
      const RowNumber number = state_.caches[j]->copies[slot].row;
      if (number != kNoRow)
        staleness_.restore(j, slot, number, state_.index[number].holders.contains(static_cast<int>(j)));
    }
  }
}

}  // namespace esd
