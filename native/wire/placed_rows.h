// Rows to move. A row that the plan also trains is named by its place among the trained rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace esd::wire {

// Columns of rows, [count].
struct RowSpan {
  const std::uint64_t* ids;
  const std::uint32_t* slots;
  const std::int64_t* versions;
  std::size_t count;
};

// Puts rows together. A place below trained.count names a trained row; trained.count itself stands for the next of the
// others. `put(i, rows, at)` gets the rows in order: row i is row `at` of `rows`.
//
// Throws std::invalid_argument, with a text that follows the name of the column, unless every place exists and each of the
// others has one.
template <typename Put>
void place_rows(const std::uint32_t* places, std::size_t count, const RowSpan& trained, const RowSpan& others,
                Put put) {
  std::size_t next = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t place = places[i];
    if (place > trained.count) {
      throw std::invalid_argument("contains " + std::to_string(place) + ", there are " + std::to_string(trained.count) +
                                  " unique_ids");
    }
    const bool trains = place < trained.count;
    const std::size_t at = trains ? place : next++;
    if (trains || at < others.count) put(i, trains ? trained : others, at);
  }
  if (next != others.count) {
    throw std::invalid_argument("leaves " + std::to_string(next) + " rows to ids, which has " +
                                std::to_string(others.count));
  }
}

}  // namespace esd::wire
