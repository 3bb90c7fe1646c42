#include "engine/batch/row_limit.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "engine/rows/row_state.h"

namespace esd {

void RowLimit::check(const PreparedBatch& batch) const {
  if (!active()) return;
  if (batch.distinct() > limit_) {
    throw std::invalid_argument("the batch has " + std::to_string(batch.distinct()) + " rows, max_rows is " +
                                std::to_string(limit_));
  }
}

void RowLimit::make_room(const StateIndex& index, const PreparedBatch& batch, std::uint32_t now,
                         std::vector<RowNumber>& forgotten, Lives& lives) {
  forgotten.clear();
  for (const RowState& row : batch.states) rows_ += row.version == 0;
  for (; rows_ > limit_ && first_ < records_.size(); ++first_) {
    if (first_ + kAhead < records_.size()) index.prefetch(records_[first_ + kAhead].row);
    const RowState& row = index[records_[first_].row];
    // A row of the batch is passed over for good, since it gets a new record.
    if (!is_last(records_[first_], row) || row.location == kInBatch) continue;
    forgotten.push_back(records_[first_].row);
    lives.forget(row);
    --rows_;
  }
  if (records_.size() > 2 * rows_ + kSlack) sweep(index);
  for (const RowNumber row : batch.row_numbers) records_.push_back({row, now});
}

void RowLimit::sweep(const StateIndex& index) {
  std::size_t kept = 0;
  for (std::size_t i = first_; i < records_.size(); ++i) {
    if (i + kAhead < records_.size()) index.prefetch(records_[i + kAhead].row);
    const Record record = records_[i];
    records_[kept] = record;
    kept += is_last(record, index[record.row]);
  }
  records_.resize(kept);
  first_ = 0;
}

void RowLimit::restore(const StateIndex& index) {
  rows_ = 0;
  records_.clear();
  first_ = 0;
  if (!active()) return;
  for (RowNumber row = 0; row < index.size(); ++row) {
    if (index[row].version > 0) records_.push_back({row, index[row].last_use});
  }
  rows_ = records_.size();
  std::sort(records_.begin(), records_.end(), [&](const Record& a, const Record& b) {
    return a.last_use != b.last_use ? a.last_use < b.last_use : index[a.row].id < index[b.row].id;
  });
}

}  // namespace esd
