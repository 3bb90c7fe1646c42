#include "engine/batch/row_limit.h"

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
  if (!active()) return;
  for (const RowState& row : batch.states) rows_ += row.version == 0;
  while (rows_ > limit_) {
    const RowNumber row = queue_.take(index, now);
    if (row == kNoRow) break;
    forgotten.push_back(row);
    lives.forget(index[row]);
    --rows_;
  }
  queue_.sweep(index);
  for (const RowNumber row : batch.row_numbers) queue_.add(row, now);
}

void RowLimit::restore(const StateIndex& index) {
  rows_ = 0;
  queue_ = {};
  if (!active()) return;
  for (RowNumber row = 0; row < index.size(); ++row) {
    if (index[row].version == 0) continue;
    queue_.add(row, index[row].last_use);
    ++rows_;
  }
  queue_.sort(index);
}

}  // namespace esd
