// The hot set of static caching as in FAE (ESD paper, section 6.1): the most popular rows, chosen once and for all.
//
// FAE profiles the data before training. A stream is not known before, so its first iterations are the profile.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/batch/row_sizes.h"
#include "engine/rows/index_types.h"
#include "engine/rows/state_index.h"

namespace esd {

class HotRows {
 public:
  static constexpr std::uint32_t kProfileIterations = 100;

  // Whether the row is hot. None is before the set is chosen.
  bool operator[](RowNumber row) const { return row < hot_.size() && hot_[row]; }

  // Chooses the rows that most iterations have trained, ties to the lower id, as many as fit the room.
  void choose(const StateIndex& index, const RowSizes& sizes, std::uint64_t room) {
    std::vector<RowNumber> rows;
    for (RowNumber row = 0; row < index.size(); ++row) {
      if (index[row].version > 0) rows.push_back(row);
    }
    std::sort(rows.begin(), rows.end(), [&](RowNumber a, RowNumber b) {
      return index[a].version != index[b].version ? index[a].version > index[b].version : index[a].id < index[b].id;
    });
    hot_.assign(index.size(), 0);
    for (const RowNumber row : rows) {
      const std::uint32_t size = sizes.of_row(index[row].id);
      if (size > room) break;
      room -= size;
      hot_[row] = 1;
    }
  }

  // The row has left the table; its number may be given to another one.
  void forget(RowNumber row) {
    if (row < hot_.size()) hot_[row] = 0;
  }

  // For snapshots.
  const std::vector<std::uint8_t>& flags() const { return hot_; }
  void restore(std::vector<std::uint8_t>&& flags) { hot_ = std::move(flags); }

  std::size_t memory_bytes() const { return hot_.capacity(); }

 private:
  std::vector<std::uint8_t> hot_;  // by row number
};

}  // namespace esd
