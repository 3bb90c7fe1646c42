// The engine's part in flushing ahead: what is known of later batches, what waits to be pushed, and what leaves now.
#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/memory/sort_by_id.h"
#include "engine/rows/row_state.h"

namespace esd {
namespace {

bool unpushed(const RowState& row) { return row.kind == kOwned || row.kind == kSplit; }

}  // namespace

void Engine::look_ahead(const std::uint64_t* ids, std::size_t count, std::uint32_t iteration) {
  if (!flush_ahead_) throw std::logic_error("this engine does not flush ahead");
  if (iteration <= iteration_ || iteration >= iteration_ + FlushQueue::kSteps) {
    throw std::invalid_argument("iteration " + std::to_string(iteration) + " is announced, the next one is " +
                                std::to_string(iteration_) + ", and it may be at most " +
                                std::to_string(FlushQueue::kSteps - 1) + " ahead");
  }
  check_in();
  for (std::size_t i = 0; i < count; ++i) {
    const bool first = flush_queue_.next_read(ids[i], iteration_) == FlushQueue::kNever;
    flush_queue_.read(ids[i], iteration);
    const RowNumber number = first ? index_.find(ids[i]) : kNoRow;
    if (number == kNoRow) continue;
    const RowState& row = index_[number];  // it waited without a priority, if it waits
    if (!unpushed(row) || row.used_in(iteration_ - 1)) continue;
    row.holders.for_each([&](unsigned j) { flush_queue_.put(j, number, iteration); });
  }
}

// Pushes rows that the batch does not need, up to a number of them by worker. The last iteration has not trained them, so
// they move while it trains.
void Engine::flush_ahead(const std::int64_t* limits, IterationPlans& plans) {
  SorterById<std::vector<TransferRow>> sorter;
  for (unsigned j = 0; j < workers(); ++j) {
    std::int64_t left = std::max<std::int64_t>(0, limits[j]);
    const std::int64_t most = left;
    flush_queue_.take(j, iteration_, [&](RowNumber number, std::uint32_t priority) {
      if (left <= 0) return false;
      RowState& row = index_[number];
      const bool here = row.location != kInBatch && row.location != kUnused && row.holders.contains(j);
      if (!here || !unpushed(row) || row.used_in(iteration_ - 1)) return true;
      if (flush_queue_.next_read(row.id, iteration_) != priority) return true;
      give_away(j, number);
      --left;
      return true;
    });
    plans.pushed_ahead[j] = most - left;
    owed_[j].sort(sorter);
    Slots outdated;
    for (const TransferRow& gradient : owed_[j].gradients) outdated.push_back(gradient.slot);
    caches_[j]->policy->outdate(outdated.data(), outdated.size(), iteration_);
  }
}

// A worker pushes what it has of a row; others may still have their parts of it.
void Engine::give_away(unsigned worker, RowNumber number) {
  RowState& row = index_[number];
  owe(worker, number, directory_.find(row).slot(worker));
  if (row.kind == kOwned) {
    row.kind = kClean;
  } else {
    const WorkerSet trainers = directory_.contributors(row);
    row.holders.remove(worker);
    if (row.holders.empty()) {  // as after a flush: who has trained it last, and still caches it, is worth knowing
      row.holders = trainers - (trainers - directory_.cached(row));
      row.kind = row.holders.empty() ? kClean : kSettled;
    }
  }
  directory_.tidy(row);
}

// What the last iteration but one has trained, and the last one has not, waits from now on: nothing that trains touches
// it. Called when the state has advanced by one iteration.
void Engine::await_flush() {
  for (const RowNumber number : trained_) {
    const RowState& row = index_[number];
    if (row.location == kUnused || !unpushed(row) || row.used_in(iteration_ - 1)) continue;
    const std::uint32_t priority = flush_queue_.next_read(row.id, iteration_ - 1);
    row.holders.for_each([&](unsigned j) { flush_queue_.put(j, number, priority); });
  }
  trained_ = batch_.row_numbers;
  flush_queue_.pass(iteration_ - 1);
}

}  // namespace esd
