// Which samples of a stream use replicated rows alone, told before any of it is dispatched (SCARS paper, section III).
//
// What an engine replicates follows from the batches that it trains (replication.h). This takes in the same
// batches, makes the same choices, and so knows what the engine will have replicated when it gets the next one. It
// forgets rows that were not read of late: memory is bounded by what the last batches have read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/batch/prepared_batch.h"
#include "engine/batch/row_sizes.h"
#include "engine/rows/index_types.h"
#include "engine/rows/row_state.h"
#include "engine/rows/state_index.h"
#include "engine/sync/replication.h"

namespace esd {

class HotSamples {
 public:
  // `table_sizes` are those of RowSizes; `replication` is what the engine has.
  HotSamples(std::vector<std::uint32_t> table_sizes, Replication replication)
      : sizes_(std::move(table_sizes)), replication_(std::move(replication)) {}

  // Fills `hot` [samples] with whether all rows of a sample are replicated. One without rows is hot.
  void judge(const SampleIds& samples, std::uint8_t* hot) const {
    const std::uint64_t* ids = samples.ids;
    for (std::size_t i = 0; i < samples.samples; ++i) {
      const std::uint64_t* const end = ids + samples.count_of(i);
      hot[i] = std::all_of(ids, end, [&](std::uint64_t id) { return is_replicated(id); });
      ids = end;
    }
  }

  // Takes in the next batch that is trained. Returns whether rows have left, and samples may be hot no longer.
  bool train(const SampleIds& samples) {
    sizes_.check(samples.ids, samples.count());
    finder_.find(samples, batch_);
    batch_.look_up(index_);
    for (BatchIndex x = 0; x < batch_.distinct(); ++x) {
      RowState& row = batch_.states[x];
      if (row.pinned || !replication_.wanted(batch_.row_numbers[x])) continue;
      row.pinned = 1;
      replication_.join(batch_.row_numbers[x], sizes_.of_row(row.id));
    }
    index_.check_in(batch_.row_numbers, batch_.states);
    replication_.count(batch_, index_.size());
    if (!replication_.due(++iteration_)) return false;
    const std::vector<RowNumber> leaving = replication_.choose(index_, sizes_);
    for (const RowNumber number : leaving) index_[number].pinned = 0;
    forget_unread();
    return !leaving.empty();
  }

  std::size_t memory_bytes() const {
    return index_.memory_bytes() + replication_.memory_bytes() + batch_.memory_bytes() + finder_.memory_bytes();
  }

 private:
  bool is_replicated(std::uint64_t id) const {
    const RowNumber number = index_.find(id);
    return number != kNoRow && index_[number].pinned;
  }

  void forget_unread() {
    for (RowNumber number = 0; number < index_.size(); ++number) {
      if (index_[number].location != kUnused && !replication_.listed(number)) index_.forget(number);
    }
  }

  const RowSizes sizes_;
  Replication replication_;
  StateIndex index_;
  IdFinder finder_;
  PreparedBatch batch_;
  std::uint32_t iteration_ = 0;
};

}  // namespace esd
