#include "engine/sync/proactive.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "engine/rows/row_state.h"

namespace esd {
namespace {

bool is_unpushed(const RowState& row) { return row.kind == kOwned || row.kind == kSplit; }

}  // namespace

void Proactive::look_ahead(const std::uint64_t* ids, std::size_t count, std::uint32_t iteration) {
  const std::uint32_t now = state_.iteration;
  if (iteration <= now || iteration >= now + FlushQueue::kSteps) {
    throw std::invalid_argument("iteration " + std::to_string(iteration) + " is announced, the next one is " +
                                std::to_string(now) + ", and it may be at most " +
                                std::to_string(FlushQueue::kSteps - 1) + " ahead");
  }
  for (std::size_t i = 0; i < count; ++i) {
    const bool first = queue_.next_read(ids[i], now) == FlushQueue::kNever;
    queue_.read(ids[i], iteration);
    const RowNumber number = first ? state_.index.find(ids[i]) : kNoRow;
    if (number == kNoRow) continue;
    const RowState& row = state_.index[number];  // it waited without a priority, if it waits
    if (!is_unpushed(row) || row.used_in(now - 1)) continue;
    row.holders.for_each([&](unsigned j) { queue_.put(j, number, iteration); });
  }
}

// Pushes rows that the batch does not need, up to a number of them by worker. The last iteration has not trained them, so
// they move while it trains.
void Proactive::begin(const std::int64_t* limits, IterationPlans& plans) {
  const std::uint32_t now = state_.iteration;
  plans.figures.assign(state_.workers(), 0);
  if (limits == nullptr) return;
  for (unsigned j = 0; j < state_.workers(); ++j) {
    std::int64_t left = std::max<std::int64_t>(0, limits[j]);
    const std::int64_t most = left;
    queue_.take(j, now, [&](RowNumber number, std::uint32_t priority) {
      if (left <= 0) return false;
      RowState& row = state_.index[number];
      const bool here = row.location != kInBatch && row.location != kUnused && row.holders.contains(j);
      if (!here || !is_unpushed(row) || row.used_in(now - 1)) return true;
      if (queue_.next_read(row.id, now) != priority) return true;
      give_away(j, number);
      --left;
      return true;
    });
    plans.figures[j] = most - left;
    outdate_owed(j);
  }
}

// A worker pushes what it has of a row; others may still have their parts of it.
void Proactive::give_away(unsigned worker, RowNumber number) {
  RowState& row = state_.index[number];
  CopyDirectory& directory = state_.directory;
  owe(worker, number, directory.find(row).slot(worker));
  if (row.kind == kOwned) {
    row.kind = kClean;
  } else {
    const WorkerSet trainers = directory.contributors(row);
    row.holders.remove(worker);
    if (row.holders.empty()) {  // as after a flush: who has trained it last, and still caches it, is worth knowing
      row.holders = trainers - (trainers - directory.cached(row));
      row.kind = row.holders.empty() ? kClean : kSettled;
    }
  }
  directory.tidy(row);
}

// What the last iteration but one has trained, and the last one has not, waits from now on: nothing that trains touches
// it.
void Proactive::after(IterationPlans&) {
  const std::uint32_t last = state_.iteration - 1;
  for (const RowNumber number : trained_) {
    const RowState& row = state_.index[number];
    if (row.location == kUnused || !is_unpushed(row) || row.used_in(last)) continue;
    const std::uint32_t priority = queue_.next_read(row.id, last);
    row.holders.for_each([&](unsigned j) { queue_.put(j, number, priority); });
  }
  trained_ = state_.batch.row_numbers;
  queue_.pass(last);
  for (unsigned j = 0; j < state_.workers(); ++j) {
    queue_.sweep(j, [&](RowNumber number) {
      const RowState& row = state_.index[number];
      return row.location != kUnused && is_unpushed(row) && row.holders.contains(j);
    });
  }
}

void Proactive::flush() {
  OnDemand::flush();
  queue_.clear();
  trained_.clear();
}

void Proactive::restore(SavedSync&& saved) {
  OnDemand::restore(std::move(saved));
  queue_ = FlushQueue(state_.workers());
  trained_.clear();
}

}  // namespace esd
