// The rows that no worker caches any more, in the order in which their last copies left.
//
// A row that is cached again, or leaves again, leaves its record behind, which no longer names its last departure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/rows/index_types.h"
#include "engine/rows/state_index.h"

namespace esd {

struct UncachedRow {
  RowNumber row;
  std::uint32_t since;  // the iteration whose plan takes the last copy away
};

class UncachedRows {
 public:
  // None are kept where the engine knows its rows for ever.
  explicit UncachedRows(bool kept) : kept_(kept) {}

  // The row's state names no worker. It is in a batch, maybe, so the caller hands it over.
  void add(RowNumber number, RowState& row, std::uint32_t iteration) {
    row.slot = iteration;
    if (kept_) records_.push_back({number, iteration});
  }

  std::size_t size() const { return records_.size() - first_; }  // records that are out of date included
  const UncachedRow& front() const { return records_[first_]; }

  void pop(const StateIndex& index) {
    ++first_;
    if (first_ + kAhead < records_.size()) index.prefetch(records_[first_ + kAhead].row);
    if (2 * first_ < records_.size() || first_ < kAhead) return;
    records_.erase(records_.begin(), records_.begin() + static_cast<std::ptrdiff_t>(first_));
    first_ = 0;
  }

  // The record after `count` others, null where there are fewer.
  const UncachedRow* ahead(std::size_t count) const {
    return first_ + count < records_.size() ? &records_[first_ + count] : nullptr;
  }

  // Whether the record names the last departure of the row that has this state, which is in no batch.
  static bool is_last(const UncachedRow& record, const RowState& row) {
    return row.location == kNowhere && row.slot == record.since;
  }

  // For snapshots.
  std::vector<UncachedRow> records() const {
    return {records_.begin() + static_cast<std::ptrdiff_t>(first_), records_.end()};
  }
  void restore(std::vector<UncachedRow>&& records) {
    records_ = std::move(records);
    first_ = 0;
  }

  std::size_t memory_bytes() const { return records_.capacity() * sizeof(UncachedRow); }

 private:
  static constexpr std::size_t kAhead = 32;  // records ahead whose rows are prefetched

  bool kept_;
  std::vector<UncachedRow> records_;
  std::size_t first_ = 0;  // the records before it have been taken
};

}  // namespace esd
