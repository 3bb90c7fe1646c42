#include "engine/plan/resolve.h"

#include <algorithm>

namespace esd {
namespace {

// Workers that push a row, or their share of it, before others train it.
WorkerMask pushers(const RowState& row, WorkerMask trainers) {
  const bool others_train = trainers & ~row.mask;
  return row.mask & all_if((row.kind == kSplit) | ((row.kind == kOwned) & others_train));
}

// Workers whose copies are latest, or owe a push, and will not be or do so any more.
WorkerMask losers(const RowState& row, WorkerMask trainers) {
  return row.mask & ~trainers & all_if(row.kind != kSettled);
}

// Where the lists of a worker go on; a turn has the same.
struct Drafts {
  Need* needs;
  std::uint32_t* losses;
  Push* pushes[2][2];
};

void begin_drafts(std::vector<WorkerTurn>& turns, std::size_t rows, Drafts* drafts) {
  for (WorkerTurn& turn : turns) {
    drafts->needs = turn.needs.draft(rows);
    drafts->losses = turn.losses.draft(rows);
    for (const bool gradients : {false, true}) {
      for (const bool early : {false, true}) {
        drafts->pushes[gradients][early] = turn.pushes[gradients][early].draft(rows);
      }
    }
    ++drafts;
  }
}

void end_drafts(std::vector<WorkerTurn>& turns, const Drafts* drafts) {
  for (WorkerTurn& turn : turns) {
    turn.needs.end_at(drafts->needs);
    turn.losses.end_at(drafts->losses);
    for (const bool gradients : {false, true}) {
      for (const bool early : {false, true}) {
        turn.pushes[gradients][early].end_at(drafts->pushes[gradients][early]);
      }
    }
    ++drafts;
  }
}

// Rows `begin` to `end`.
void resolve(const PreparedBatch& batch, const Trainers& trainers, const CopyDirectory& directory,
             std::uint32_t iteration, std::uint32_t begin, std::uint32_t end, Drafts* drafts) {
  constexpr std::uint32_t kAhead = 24;  // rows prefetched
  const RowState* const states = batch.states.data();
  const auto last = static_cast<std::uint32_t>(batch.distinct()) - 1;
  for (std::uint32_t x = begin; x < end; ++x) {
    directory.prefetch(states[std::min(x + kAhead, last)]);
    const RowState& row = states[x];
    const WorkerMask training = trainers[x], latest = row.latest();
    const CopyDirectory::Entry entry = directory.find(row);
    const bool early = !row.used_in(iteration - 1), split = row.kind == kSplit;
    for_each_worker(training, [&](unsigned j) {
      const bool pulled = ~latest >> j & 1;
      *drafts[j].needs++ = {x, entry.slot(j), pulled, early};
    });

    const WorkerMask pushing = pushers(row, training), losing = losers(row, training);
    const auto give_up = [&](unsigned j) {
      Drafts& draft = drafts[j];
      const std::uint32_t slot = entry.slot(j);
      *draft.losses = slot;
      draft.losses += losing >> j & 1;
      Push*& push = draft.pushes[split][early];
      *push = {x, slot};
      push += pushing >> j & 1;
    };
    const WorkerMask giving = pushing | losing;
    // The first worker is no branch, since it can hardly be predicted whether there is one: if not, 0 writes in vain.
    give_up(first_worker_or_0(giving));
    for_each_worker(giving & (giving - 1), give_up);
  }
}

}  // namespace

void resolve(const PreparedBatch& batch, const Trainers& trainers, const CopyDirectory& directory,
             std::uint32_t iteration, std::vector<WorkerTurn>& turns) {
  constexpr std::uint32_t kBlock = 512;  // rows between two looks whether the lists have room
  for (WorkerTurn& turn : turns) turn.clear();
  std::vector<Drafts> drafts(turns.size());
  const auto distinct = static_cast<std::uint32_t>(batch.distinct());
  for (std::uint32_t begin = 0; begin < distinct; begin += kBlock) {
    begin_drafts(turns, kBlock, drafts.data());
    resolve(batch, trainers, directory, iteration, begin, std::min(begin + kBlock, distinct), drafts.data());
    end_drafts(turns, drafts.data());
  }
}

}  // namespace esd
