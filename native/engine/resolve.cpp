#include "engine/resolve.h"

#include <algorithm>

namespace esd {
namespace {

// Workers that push a row, or their share of it, before others train it.
WorkerMask pushers(const RowState& row, WorkerMask trainers) {
  const bool others_train = trainers & ~row.mask;
  return row.mask & all_if((row.kind == kSplit) | ((row.kind == kOwned) & others_train));
}

// Workers whose copies are latest, or owe a push, and will not be or do so any more.
WorkerMask losers(const RowState& row, WorkerMask trainers) { return row.mask & ~trainers & all_if(row.kind != kSettled); }

}  // namespace

void resolve(const PreparedBatch& batch, const Trainers& trainers, const CopyDirectory& directory,
             std::uint32_t iteration, std::vector<WorkerTurn>& turns) {
  constexpr std::uint32_t kAhead = 24;  // rows prefetched
  for (WorkerTurn& turn : turns) turn.clear();
  const RowState* const states = batch.states.data();
  WorkerTurn* const turn_of = turns.data();
  const auto distinct = static_cast<std::uint32_t>(batch.distinct());
  for (std::uint32_t x = 0; x < distinct; ++x) {
    directory.prefetch(states[std::min(x + kAhead, distinct - 1)]);
    const RowState& row = states[x];
    const WorkerMask training = trainers[x], latest = row.latest();
    const CopyDirectory::Entry entry = directory.find(row);
    const bool early = !row.used_in(iteration - 1);
    for_each_worker(training, [&](unsigned j) {
      Need& need = turn_of[j].needs.next();
      need.number = x;
      need.slot = entry.slot(j);
      need.pulled = ~latest >> j & 1;
      need.early = early;
      turn_of[j].needs.keep(true);
    });

    const WorkerMask pushing = pushers(row, training), losing = losers(row, training);
    const bool split = row.kind == kSplit;
    for_each_worker(pushing | losing, [&](unsigned j) {
      WorkerTurn& turn = turn_of[j];
      const std::uint32_t slot = entry.slot(j);
      turn.losses.next() = slot;
      turn.losses.keep(losing >> j & 1);
      auto& list = turn.pushes[split][early];
      Push& push = list.next();
      push.number = x;
      push.slot = slot;
      list.keep(pushing >> j & 1);
    });
  }
}

}  // namespace esd
