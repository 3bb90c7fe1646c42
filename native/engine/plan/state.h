// The state of all rows and the mirrors of all caches of one job, as a commit finds and advances it.
//
// The engine owns it; the way to synchronise (sync/sync.h) works on it, too.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/batch/prepared_batch.h"
#include "engine/batch/row_limit.h"
#include "engine/batch/row_sizes.h"
#include "engine/batch/trainers.h"
#include "engine/cache/cache_mirror.h"
#include "engine/cache/hot_rows.h"
#include "engine/plan/worker_lists.h"
#include "engine/rows/copy_directory.h"
#include "engine/rows/index_types.h"
#include "engine/rows/row_state.h"
#include "engine/rows/state_index.h"
#include "engine/rows/uncached_rows.h"

namespace esd {

struct State {
  State(std::vector<std::uint32_t> cache_sizes, std::string policy, RowSizes sizes, bool releases_rows)
      : cache_sizes(std::move(cache_sizes)),
        policy(std::move(policy)),
        sizes(std::move(sizes)),
        caches(make_caches()),
        directory(workers()),
        uncached(releases_rows),
        lists(workers()) {}
  State(const State&) = delete;  // the policies of the caches refer to `index` and `hot_rows`
  State& operator=(const State&) = delete;

  unsigned workers() const { return static_cast<unsigned>(cache_sizes.size()); }

  std::vector<std::unique_ptr<CacheMirror>> make_caches() const {
    std::vector<std::unique_ptr<CacheMirror>> made;
    for (const std::uint32_t size : cache_sizes) {
      made.push_back(std::make_unique<CacheMirror>(size, policy, RowTraits{sizes, hot_rows, index}));
    }
    return made;
  }

  // Finds the states of rows, which are in the batch or in the index, until a row is added. Which of them is no branch,
  // since it can hardly be predicted.
  class RowStates {
   public:
    RowState& operator[](RowNumber number) const {
      RowState& row = rows_[number];
      const bool in_batch = row.location == kInBatch;
      RowState* const states[] = {&row, batch_ + (row.slot & -std::uint32_t{in_batch})};
      return *states[in_batch];
    }
    [[gnu::always_inline]] void prefetch(RowNumber number) const { __builtin_prefetch(&rows_[number], 1); }

   private:
    friend struct State;
    RowStates(StateIndex::Rows rows, RowState* batch) : rows_(rows), batch_(batch) {}
    StateIndex::Rows rows_;
    RowState* batch_;
  };
  RowStates row_states() { return {index.rows(), batch.states.data()}; }
  RowState& state_of(RowNumber number) { return row_states()[number]; }

  const std::vector<std::uint32_t> cache_sizes;  // by worker, in units of row size
  const std::string policy;
  const RowSizes sizes;

  StateIndex index;
  HotRows hot_rows;
  std::vector<std::unique_ptr<CacheMirror>> caches;  // by worker
  CopyDirectory directory;
  UncachedRows uncached;
  std::uint32_t iteration = 0;

  // Of the iteration at hand.
  PreparedBatch batch;
  Trainers trainers;
  std::vector<WorkerLists> lists;  // by worker
};

}  // namespace esd
