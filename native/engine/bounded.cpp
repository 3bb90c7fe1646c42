// The engine's part in bounded staleness (plan/staleness.h): who pushes what it has gathered, who pulls, and on what.
//
// All rows are clean here, and their holders are the workers whose copies are good enough: so whatever decides on a batch
// knows what a worker would pull.
#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/memory/sort_by_id.h"
#include "engine/rows/row_state.h"

namespace esd {

// What the worker has gathered of a row goes out with the next plan.
void Engine::give(unsigned worker, RowNumber number, SlotIndex slot) {
  staleness_->push(worker, slot, number, caches_[worker]->copies[slot].table, replacement_.state_of(number).last_use);
  given_[worker].emplace_back(number, slot);
}

// Carries out what the bounds ask for, when room is made and before anything is trained.
void Engine::synchronise(IterationPlans& plans) {
  for (unsigned j = 0; j < workers(); ++j) staleness_->grow(j, caches_[j]->slots());
  pull_spent_copies();
  staleness_->merge();
  for (unsigned j = 0; j < workers(); ++j) {
    WorkerPlan& plan = plans.workers[j];
    list_given(j);
    owed_[j].write(plans.arena, plan.update_rows, plan.update_gradients);
    name_evicted(plan, plans.arena);
    name_copies(j, plan, plans.arena);
  }
  for (const RowNumber number : staleness_->pushed()) {
    if (index_[number].location != kInBatch) judge_copies(number, index_[number].holders);
  }
  staleness_->end_merge();
}

// A copy that is too far behind is pulled, and pushed before that. What is pushed puts the others of its row further
// behind, so this is repeated until it changes nothing.
void Engine::pull_spent_copies() {
  std::vector<std::vector<bool>> pulled(workers());
  for (unsigned j = 0; j < workers(); ++j) {
    for (const Need& need : lists_[j].needs) pulled[j].push_back(need.slot == kNoSlot);
  }
  for (bool changed = true; changed;) {
    changed = false;
    for (unsigned j = 0; j < workers(); ++j) {
      for (std::size_t i = 0; i < pulled[j].size(); ++i) {
        const Need& need = lists_[j].needs[i];
        const RowNumber number = batch_.row_numbers[need.row];
        if (pulled[j][i] || staleness_->fresh(j, need.slot, number)) continue;
        pulled[j][i] = true;
        if (!staleness_->unpushed(j, need.slot)) continue;
        give(j, number, need.slot);
        changed = true;
      }
    }
  }
  for (unsigned j = 0; j < workers(); ++j) {
    NeedList more[2];  // by Timing, besides those whose copies were too far behind before
    for (std::size_t i = 0; i < pulled[j].size(); ++i) {
      const Need& need = lists_[j].needs[i];
      if (pulled[j][i] && !need.pulled) more[need.timing].push_back(static_cast<NeedIndex>(i));
    }
    for (const Timing timing : {kLate, kEarly}) {
      if (more[timing].empty()) continue;
      NeedList& pulls = lists_[j].pulls[timing];
      const auto before = static_cast<std::ptrdiff_t>(pulls.size());
      pulls.insert(pulls.end(), more[timing].begin(), more[timing].end());
      std::inplace_merge(pulls.begin(), pulls.begin() + before, pulls.end());
    }
  }
}

// Turns what a worker gives into gradients to push, in the order of ids.
void Engine::list_given(unsigned worker) {
  for (const auto& [number, slot] : given_[worker]) {
    const RowState& row = replacement_.state_of(number);
    TransferRow gradient(row, sizes_.of_row(row.id), staleness_->pushers(number), slot, iteration_);
    gradient.version = first_version(row.life) + staleness_->version(number);
    owed_[worker].gradients.push_back(gradient);
    staleness_->name(worker, slot, number);
  }
  given_[worker].clear();
  SorterById<std::vector<TransferRow>> sorter;
  owed_[worker].sort(sorter);
}

// Gradients that leave with their copies: the version that they make, and with whom, is known only now.
void Engine::name_evicted(const WorkerPlan& plan, Arena& arena) {
  const TransferSpans& evicted = plan.evict_gradients;
  for (std::size_t i = 0; i < evicted.ids.size; ++i) {
    const RowNumber number = index_.find(arena.u64[evicted.ids.begin + i]);
    arena.i64[evicted.versions.begin + i] =
        first_version(replacement_.state_of(number).life) + staleness_->version(number);
    arena.u64[evicted.contributors.begin + i] = staleness_->pushers(number).bits;
  }
}

// Each worker trains rows for itself: those that it pulls at the server's version, others at that of its copy.
void Engine::name_copies(unsigned worker, const WorkerPlan& plan, Arena& arena) {
  const WorkerLists& lists = lists_[worker];
  const SlotIndex* const slots = arena.u32.data() + plan.unique_slots.begin;
  for (const NeedList& pulls : lists.pulls) {
    for (const NeedIndex i : pulls) staleness_->pull(worker, slots[i], batch_.row_numbers[lists.needs[i].row]);
  }
  for (std::size_t i = 0; i < lists.needs.size(); ++i) {
    const RowState& row = batch_.states[lists.needs[i].row];
    arena.i64[plan.unique_versions.begin + i] = first_version(row.life) + staleness_->version(worker, slots[i]);
    arena.u64[plan.unique_contributors.begin + i] = WorkerSet::only(static_cast<int>(worker)).bits;
  }
}

// Counts what was read, and what was trained on it; what has gathered beyond the bound goes out with the next plan.
void Engine::count_updates(IterationPlans& plans) {
  const auto of_needs = [&](auto use) {
    for (unsigned j = 0; j < workers(); ++j) {
      const SlotIndex* slot = plans.arena.u32.data() + plans.workers[j].unique_slots.begin;
      for (const Need& need : lists_[j].needs) use(j, *slot++, batch_.row_numbers[need.row]);
    }
  };
  of_needs(
      [&](unsigned j, SlotIndex slot, RowNumber row) { plans.stale_reads.add(staleness_->missing(j, slot, row)); });
  of_needs([&](unsigned j, SlotIndex slot, RowNumber row) {
    staleness_->train(j, slot, row, plans.iteration);
    if (staleness_->due(j, slot)) give(j, row, slot);
  });
  for (std::size_t x = 0; x < batch_.distinct(); ++x) {
    judge_copies(batch_.row_numbers[x], batch_.states[x].holders | trainers_[static_cast<BatchIndex>(x)]);
  }
  outdate_spent();
}

// The holders of a row are the workers that may train on their copies; `before` are those that could so far.
void Engine::judge_copies(RowNumber number, WorkerSet before) {
  RowState& row = index_[number];
  row.kind = kClean;
  row.holders = {};
  const CopyDirectory::Entry entry = directory_.find(row);
  directory_.cached(row).for_each([&](int j) {
    const SlotIndex slot = entry.slot(static_cast<unsigned>(j));
    if (staleness_->fresh(static_cast<unsigned>(j), slot, number)) {
      row.holders.add(j);
    } else if (before.contains(j)) {
      spent_[static_cast<std::size_t>(j)].push_back(slot);
    }
  });
}

void Engine::outdate_spent() {
  for (unsigned j = 0; j < workers(); ++j) {
    caches_[j]->policy->outdate(spent_[j].data(), spent_[j].size(), iteration_);
    spent_[j].clear();
  }
}

// Whoever keeps something to himself pushes it. A copy that differs from the parameter server's is pulled before it is
// used again: so what is trained after a checkpoint depends on nothing that a checkpoint does not hold.
void Engine::give_all() {
  const auto of_copies = [&](auto use) {
    for (unsigned j = 0; j < workers(); ++j) {
      for (SlotIndex slot = 0; slot < caches_[j]->slots(); ++slot) {
        const RowNumber number = caches_[j]->copies[slot].row;
        if (number != kNoRow) use(j, slot, number);
      }
    }
  };
  of_copies([&](unsigned j, SlotIndex slot, RowNumber number) {
    if (staleness_->unpushed(j, slot)) give(j, number, slot);
  });
  staleness_->merge();
  for (unsigned j = 0; j < workers(); ++j) list_given(j);
  staleness_->end_merge();
  of_copies([&](unsigned j, SlotIndex slot, RowNumber number) { staleness_->settle(j, slot, number); });
  of_copies([&](unsigned, SlotIndex, RowNumber number) { judge_copies(number, index_[number].holders); });
  outdate_spent();
  for (RowNumber number = 0; number < index_.size(); ++number) {
    RowState& row = index_[number];
    if (row.location != kUnused && row.version > 0) row.version = staleness_->version(number) & kMaxVersion;
  }
}

void Engine::keep_nothing_of(std::vector<RowNumber> forgotten) {
  std::sort(forgotten.begin(), forgotten.end());
  staleness_->forget(forgotten);
  for (auto& given : given_) {
    const auto leaves = [&](const auto& each) {
      return std::binary_search(forgotten.begin(), forgotten.end(), each.first);
    };
    given.erase(std::remove_if(given.begin(), given.end(), leaves), given.end());
  }
}

// Takes the rows and copies of a snapshot as they are after a flush.
void Engine::restore_staleness() {
  if (!staleness_) return;
  staleness_->clear();
  given_.assign(workers(), {});
  staleness_->grow(index_.size());
  for (RowNumber number = 0; number < index_.size(); ++number) {
    RowState& row = index_[number];
    if (row.location == kUnused) continue;
    row.holders = row.latest();
    row.kind = kClean;
    staleness_->restore(number, row.version);
  }
  for (unsigned j = 0; j < workers(); ++j) {
    staleness_->grow(j, caches_[j]->slots());
    for (SlotIndex slot = 0; slot < caches_[j]->slots(); ++slot) {
      const RowNumber number = caches_[j]->copies[slot].row;
      if (number != kNoRow) staleness_->restore(j, slot, number, index_[number].holders.contains(static_cast<int>(j)));
    }
  }
}

}  // namespace esd
