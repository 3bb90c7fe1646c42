// A limit on the trained rows of the table: the rows that were trained longest ago are forgotten for those that a batch
// brings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/batch/prepared_batch.h"
#include "engine/batch/training_queue.h"
#include "engine/rows/index_types.h"
#include "engine/rows/lives.h"
#include "engine/rows/state_index.h"

namespace esd {

class RowLimit {
 public:
  // `rows` is how many trained rows the table may have; 0 stands for any number.
  explicit RowLimit(std::uint64_t rows) : limit_(rows) {}

  bool active() const { return limit_ > 0; }

  // Throws std::invalid_argument when the batch alone has more rows.
  void check(const PreparedBatch& batch) const;

  // So many rows have left the table for another reason.
  void left(std::size_t rows) { rows_ -= active() ? rows : 0; }

  // Makes room for the rows of the batch, which iteration `now` trains. Fills `forgotten` with the rows that have to be
  // forgotten, in the order of their last training, ties by id; none of them is in the batch. Ends their lives.
  void make_room(const StateIndex& index, const PreparedBatch& batch, std::uint32_t now,
                 std::vector<RowNumber>& forgotten, Lives& lives);

  // Starts from the rows of a restored index.
  void restore(const StateIndex& index);

  std::size_t memory_bytes() const { return queue_.memory_bytes(); }

 private:
  std::uint64_t limit_;
  std::uint64_t rows_ = 0;  // trained rows of the table
  TrainingQueue queue_;
};

}  // namespace esd
