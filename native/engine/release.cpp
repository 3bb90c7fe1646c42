// What the engine knows follows the caches: a row that no worker caches, and whose pushes are durable, leaves the engine,
// while the parameter server keeps it.
//
// A plan is made when everything is durable that plans `window` iterations before it push. So a row leaves that many
// iterations after its last copy has gone, at the earliest: which rows leave follows from the stream, not from the workers'
// progress. The `spare_rows` that no worker has cached for the shortest time stay known, so that small jobs know all their rows, and lives are rarely ended.
//
// A row that comes back is born in a later, odd life, with what the parameter server has. That is its latest value, and all
// versions in its new life are above those that it had.
#include <cstddef>
#include <cstdint>

#include "engine/cache/policy.h"
#include "engine/engine.h"
#include "engine/rows/row_state.h"
#include "engine/rows/uncached_rows.h"

namespace esd {

// Rows that were looked up and not trained are known, and no worker caches them.
void Engine::abandon_batch() {
  if (!prepared_) return;
  check_in();
  for (const RowNumber number : state_.batch.row_numbers) {
    RowState& row = state_.index[number];
    if (row.version == 0 && row.location == kNowhere) state_.uncached.add(number, row, state_.iteration);
  }
}

// Rows that are new to the engine may have been known before.
void Engine::recall_trainings() {
  if (memory_.empty()) return;
  constexpr std::size_t kAhead = 24;
  PreparedBatch& batch = state_.batch;
  for (std::size_t x = 0; x < batch.distinct(); ++x) {
    if (x + kAhead < batch.distinct() && batch.states[x + kAhead].version == 0) {
      memory_.prefetch(batch.ids[x + kAhead]);
      state_.index.prefetch(batch.row_numbers[x + kAhead]);
    }
    RowState& row = batch.states[x];
    if (row.version > 0) continue;
    row.trainings = memory_.recall(row.id);
    state_.index[batch.row_numbers[x]].trainings = row.trainings;  // where cache policies look
  }
}

// Releases rows at the end of a commit, not many more than it may have brought, so that no commit takes long.
void Engine::release_rows() {
  if (window_ == 0) return;
  if (state_.policy == kStatic && state_.iteration <= HotRows::kProfileIterations) return;  // all rows may be hot
  constexpr std::size_t kNear = 12;  // rows ahead whose places in the tables are prefetched
  UncachedRows& uncached = state_.uncached;
  for (std::size_t left = 2 * state_.batch.distinct() + 1; left > 0 && uncached.size() > 0; --left) {
    const UncachedRow first = uncached.front();
    if (const UncachedRow* const later = uncached.ahead(kNear)) {  // its state is fetched already
      state_.index.prefetch_bucket(state_.index[later->row].id);
      memory_.prefetch(state_.index[later->row].id);
    }
    RowState& row = state_.index[first.row];
    if (!UncachedRows::is_last(first, row)) {
      uncached.pop(state_.index);
      continue;
    }
    if (uncached.size() <= spare_rows_ || first.since + window_ > state_.iteration) return;
    uncached.pop(state_.index);
    if (state_.hot_rows[first.row] || sync_->remembers(first.row)) {
      uncached.add(first.row, row, state_.iteration);
      continue;
    }
    if (row.version > 0) {
      lives_.release(row);
      memory_.remember(row.id, row.trainings);
    }
    sync_->release(first.row);
    history_.forget(first.row);
    state_.index.forget(first.row);
  }
}

}  // namespace esd
