// A limit on the trained rows of the table: rows that were trained longest ago leave it for those that a batch brings.
//
// Each iteration appends the rows that it trains to a queue, ascending by id, so the queue is in the order of last
// training, ties by id. A row that is trained again, or leaves, leaves its record behind, which no longer names the
// row's last training; such records are swept when they outnumber the others: constant time per trained row, amortised.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/batch/prepared_batch.h"
#include "engine/rows/state_index.h"

namespace esd {

class RowLimit {
 public:
  // `rows` that the table may have; 0: any number.
  explicit RowLimit(std::uint64_t rows) : limit_(rows) {}

  bool active() const { return limit_ > 0; }

  // Throws std::invalid_argument when the batch alone is more, std::length_error when rows have left too often.
  void check(const PreparedBatch& batch) const;

  // Makes room for the rows that the batch brings, which iteration `now` trains. Fills the numbers of the rows that
  // leave, in the order of their last training, ties by id; none of them is in the batch.
  void make_room(const StateIndex& index, const PreparedBatch& batch, std::uint32_t now,
                 std::vector<std::uint32_t>& leaving);

  // The life of rows that are born now: above that of every row that has left.
  std::uint32_t life() const { return life_; }

  // Takes up the rows of a restored index.
  void restore(const StateIndex& index, std::uint32_t life);

  std::size_t memory_bytes() const { return records_.capacity() * sizeof(Record); }

 private:
  struct Record {
    std::uint32_t row, last_use;
  };
  static constexpr std::size_t kAhead = 32;
  static constexpr std::size_t kSlack = 16;

  static bool holds(const Record& record, const RowState& row) { return row.used_in(record.last_use); }
  void sweep(const StateIndex& index);

  std::uint64_t limit_;
  std::uint64_t trained_ = 0;  // rows of the table
  std::uint32_t life_ = 0;
  std::vector<Record> records_;
  std::size_t first_ = 0;  // records before it have been taken
};

}  // namespace esd
