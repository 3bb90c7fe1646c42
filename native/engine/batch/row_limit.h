// A limit on the trained rows of the table: the rows that were trained longest ago are forgotten for those that a batch
// brings.
//
// Each iteration appends the rows that it trains to a queue, ascending by id, so the queue is in the order of last
// training, ties by id. A row that is trained again, or forgotten, leaves its record behind, which no longer names the
// row's last training. Such records are swept when they outnumber the others: constant time per trained row, amortised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/batch/prepared_batch.h"
#include "engine/rows/index_types.h"
#include "engine/rows/lives.h"
#include "engine/rows/row_state.h"
#include "engine/rows/state_index.h"

namespace esd {

class RowLimit {
 public:
  // `rows` is how many trained rows the table may have; 0 stands for any number.
  explicit RowLimit(std::uint64_t rows) : limit_(rows) {}

  bool active() const { return limit_ > 0; }

  // Throws std::invalid_argument when the batch alone has more rows.
  void check(const PreparedBatch& batch) const;

  // Makes room for the rows of the batch, which iteration `now` trains. Fills `forgotten` with the rows that have to be
  // forgotten, in the order of their last training, ties by id; none of them is in the batch. Ends their lives.
  void make_room(const StateIndex& index, const PreparedBatch& batch, std::uint32_t now,
                 std::vector<RowNumber>& forgotten, Lives& lives);

  // Starts from the rows of a restored index.
  void restore(const StateIndex& index);

  std::size_t memory_bytes() const { return records_.capacity() * sizeof(Record); }

 private:
  struct Record {
    RowNumber row;
    std::uint32_t last_use;
  };
  static constexpr std::size_t kAhead = 32;  // records ahead whose rows are prefetched
  static constexpr std::size_t kSlack = 16;

  // Whether the record names the row's last training.
  static bool is_last(const Record& record, const RowState& row) { return row.used_in(record.last_use); }
  void sweep(const StateIndex& index);

  std::uint64_t limit_;
  std::uint64_t rows_ = 0;  // trained rows of the table
  std::vector<Record> records_;
  std::size_t first_ = 0;  // the records before it have been taken
};

}  // namespace esd
