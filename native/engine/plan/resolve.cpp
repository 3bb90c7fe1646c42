#include "engine/plan/resolve.h"

#include <algorithm>
#include <cstddef>

#include "common/workers.h"
#include "engine/rows/index_types.h"
#include "engine/rows/row_state.h"

namespace esd {
namespace {

// The workers that push a row, or their share of it, before others train it.
WorkerSet pushers(const RowState& row, WorkerSet trainers) {
  const bool others_train = !(trainers - row.holders).empty();
  return row.holders.when((row.kind == kSplit) | ((row.kind == kOwned) & others_train));
}

// The workers whose copies are the latest, or owe a push, and will not be or do so any more.
WorkerSet losers(const RowState& row, WorkerSet trainers) {
  return (row.holders - trainers).when(row.kind != kSettled);
}

// Where one worker's lists go on.
struct Drafts {
  Need* needs;
  SlotIndex* outdated;
  Push* pushes[2][2];  // by Payload and Timing
};

void begin_drafts(std::vector<WorkerLists>& lists, std::size_t rows, Drafts* drafts) {
  for (WorkerLists& worker : lists) {
    drafts->needs = worker.needs.draft(rows);
    drafts->outdated = worker.outdated.draft(rows);
    for (const Payload payload : {kRow, kGradient}) {
      for (const Timing timing : {kLate, kEarly}) {
        drafts->pushes[payload][timing] = worker.pushes[payload][timing].draft(rows);
      }
    }
    ++drafts;
  }
}

void end_drafts(std::vector<WorkerLists>& lists, const Drafts* drafts) {
  for (WorkerLists& worker : lists) {
    worker.needs.end_at(drafts->needs);
    worker.outdated.end_at(drafts->outdated);
    for (const Payload payload : {kRow, kGradient}) {
      for (const Timing timing : {kLate, kEarly}) {
        worker.pushes[payload][timing].end_at(drafts->pushes[payload][timing]);
      }
    }
    ++drafts;
  }
}

// Resolves the rows from `begin` to `end`.
void resolve(const PreparedBatch& batch, const Trainers& trainers, const CopyDirectory& directory,
             std::uint32_t iteration, BatchIndex begin, BatchIndex end, Drafts* drafts) {
  constexpr BatchIndex kAhead = 24;  // rows ahead whose records are prefetched
  const RowState* const states = batch.states.data();
  const auto last = static_cast<BatchIndex>(batch.distinct()) - 1;
  for (BatchIndex x = begin; x < end; ++x) {
    directory.prefetch(states[std::min(x + kAhead, last)]);
    const RowState& row = states[x];
    const WorkerSet training = trainers[x], latest = row.latest();
    const CopyDirectory::Entry entry = directory.find(row);
    const Timing timing = timing_of(row, iteration);
    const auto payload = static_cast<Payload>(row.kind == kSplit);
    training.for_each([&](unsigned j) {
      const bool pulled = !latest.contains(j);
      *drafts[j].needs++ = {x, entry.slot(j), pulled, timing};
    });

    const WorkerSet pushing = pushers(row, training), losing = losers(row, training);
    const auto give_up = [&](unsigned j) {
      Drafts& draft = drafts[j];
      const SlotIndex slot = entry.slot(j);
      *draft.outdated = slot;
      draft.outdated += losing.contains(j);
      Push*& push = draft.pushes[payload][timing];
      *push = {x, slot};
      push += pushing.contains(j);
    };
    const WorkerSet giving = pushing | losing;
    // The first worker is no branch, since it can hardly be predicted whether there is one: if not, 0 writes in vain.
    give_up(giving.first_or_0());
    giving.without_first().for_each(give_up);
  }
}

}  // namespace

void resolve(const PreparedBatch& batch, const Trainers& trainers, const CopyDirectory& directory,
             std::uint32_t iteration, std::vector<WorkerLists>& lists) {
  constexpr BatchIndex kBlock = 512;  // rows between two looks whether the lists have room
  for (WorkerLists& worker : lists) worker.clear();
  std::vector<Drafts> drafts(lists.size());
  const auto distinct = static_cast<BatchIndex>(batch.distinct());
  for (BatchIndex begin = 0; begin < distinct; begin += kBlock) {
    begin_drafts(lists, kBlock, drafts.data());
    resolve(batch, trainers, directory, iteration, begin, std::min(begin + kBlock, distinct), drafts.data());
    end_drafts(lists, drafts.data());
  }
}

}  // namespace esd
