// The static hot set of FAE-like caching (ESD paper, section 6.1): the most popular rows, chosen once and for all.
//
// FAE profiles the data before training. A stream has no before, so the profile is its first iterations.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/batch/row_sizes.h"
#include "engine/rows/state_index.h"

namespace esd {

class HotRows {
 public:
  static constexpr std::uint32_t kProfileIterations = 100;

  // By number in the state index. No row is hot before the set is chosen.
  bool operator[](std::uint32_t row) const { return row < hot_.size() && hot_[row]; }

  // The rows that most iterations have trained, ties to the lower id, as many as fit the room.
  void choose(const StateIndex& index, const RowSizes& sizes, std::uint64_t room) {
    std::vector<std::uint32_t> rows;
    for (std::uint32_t row = 0; row < index.size(); ++row) {
      if (index[row].version > 0) rows.push_back(row);
    }
    std::sort(rows.begin(), rows.end(), [&](std::uint32_t a, std::uint32_t b) {
      return index[a].version != index[b].version ? index[a].version > index[b].version : index[a].id < index[b].id;
    });
    hot_.assign(index.size(), 0);
    for (const std::uint32_t row : rows) {
      if (sizes[row] > room) break;
      room -= sizes[row];
      hot_[row] = 1;
    }
  }

  // The row has left; its number may be given to another one.
  void forget(std::uint32_t row) {
    if (row < hot_.size()) hot_[row] = 0;
  }

  // Snapshot.
  const std::vector<std::uint8_t>& flags() const { return hot_; }
  void restore(std::vector<std::uint8_t>&& flags) { hot_ = std::move(flags); }

  std::size_t memory_bytes() const { return hot_.capacity(); }

 private:
  std::vector<std::uint8_t> hot_;  // by row number
};

}  // namespace esd
