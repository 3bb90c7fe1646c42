// The trained rows in the order of their last training, ties by id.
//
// Each iteration appends the rows that it trains, ascending by id. A row that is trained again, or forgotten, leaves its
// record behind, which no longer names the row's last training. Such records are swept when they outnumber the others:
// constant time per trained row, amortised.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/rows/index_types.h"
#include "engine/rows/row_state.h"
#include "engine/rows/state_index.h"

namespace esd {

class TrainingQueue {
 public:
  // Takes the row whose last training was the longest ago, if that was in iteration `latest` or before; kNoRow if there is
  // none. A row of the prepared batch is passed over for good, since it gets a new record.
  RowNumber take(const StateIndex& index, std::uint32_t latest) {
    while (first_ < records_.size() && records_[first_].last_use <= latest) {
      if (first_ + kAhead < records_.size()) index.prefetch(records_[first_ + kAhead].row);
      const Record record = records_[first_++];
      const RowState& row = index[record.row];
      if (row.used_in(record.last_use) && row.location != kInBatch) return record.row;
    }
    return kNoRow;
  }

  // Iteration `now` trains the row.
  void add(RowNumber row, std::uint32_t now) { records_.push_back({row, now}); }

  // Removes the records that no longer name a row's last training, if these may be more than the others.
  void sweep(const StateIndex& index) {
    if (records_.size() <= 2 * kept_ + kSlack) return;
    std::size_t kept = 0;
    for (std::size_t i = first_; i < records_.size(); ++i) {
      if (i + kAhead < records_.size()) index.prefetch(records_[i + kAhead].row);
      const Record record = records_[i];
      records_[kept] = record;
      kept += index[record.row].used_in(record.last_use);
    }
    records_.resize(kept);
    kept_ = kept;
    first_ = 0;
  }

  // Orders the rows that were added to an empty queue in any order.
  void sort(const StateIndex& index) {
    std::sort(records_.begin(), records_.end(), [&](const Record& a, const Record& b) {
      return a.last_use != b.last_use ? a.last_use < b.last_use : index[a.row].id < index[b.row].id;
    });
    kept_ = records_.size();
  }

  std::size_t memory_bytes() const { return records_.capacity() * sizeof(Record); }

 private:
  struct Record {
    RowNumber row;
    std::uint32_t last_use;
  };
  static constexpr std::size_t kAhead = 32;  // records ahead whose rows are prefetched
  static constexpr std::size_t kSlack = 16;

  std::vector<Record> records_;
  std::size_t first_ = 0;  // the records before it have been taken
  std::size_t kept_ = 0;   // the records after the last sweep
};

}  // namespace esd
