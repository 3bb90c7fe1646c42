// The time to live of rows: a row is forgotten in the iteration that is the N-th in a row not to train it, with N of its
// table.
//
// Which rows these are follows from the stream alone, and no row of the batch is among them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/batch/prepared_batch.h"
#include "engine/batch/row_sizes.h"
#include "engine/batch/training_queue.h"
#include "engine/rows/index_types.h"
#include "engine/rows/lives.h"
#include "engine/rows/state_index.h"

namespace esd {

class RowTtl {
 public:
  // `iterations` is N, by table; 0: the table's rows stay. None: all rows stay. Throws std::invalid_argument when there
  // is one for another number of tables.
  RowTtl(std::vector<std::uint32_t> iterations, const RowSizes& sizes);

  bool active() const { return active_; }

  // Fills `expired` with the rows that iteration `now`, which trains the batch, forgets: table by table, and in each in
  // the order of their last training, ties by id. Ends their lives.
  void expire(const StateIndex& index, const PreparedBatch& batch, std::uint32_t now, std::vector<RowNumber>& expired,
              Lives& lives);

  // Starts from the rows of a restored index.
  void restore(const StateIndex& index);

  std::size_t memory_bytes() const;

 private:
  std::vector<std::uint32_t> iterations_;  // by table
  const RowSizes& sizes_;
  bool active_;
  std::vector<TrainingQueue> queues_;  // by table
};

}  // namespace esd
