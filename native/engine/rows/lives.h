// The life in which rows are born: above the life of every row that the engine knew once and knows no longer.
//
// All versions rise with it (row_state.h), so the parameter server never takes a row of an earlier life for a later one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>

#include "engine/rows/row_state.h"

namespace esd {

class Lives {
 public:
  explicit Lives(std::uint32_t present = 0) : present_(present) {}

  std::uint32_t present() const { return present_; }

  // A row has left the table: rows are born with their initial values after that.
  void forget(const RowState& row) { present_ = std::max(present_, (std::uint32_t{row.life} | 1) + 1); }

  // A row has left the engine, and the table keeps it: rows are born with the values that the table has after that.
  void release(const RowState& row) { present_ = std::max(present_, (std::uint32_t{row.life} + 1) | 1); }

  // Throws std::length_error when the next life may be too many.
  void check() const {
    if (present_ + 2 > kMaxLife) throw std::length_error("the engine counts at most 2^23 - 3 lives of rows");
  }

 private:
  std::uint32_t present_;
};

}  // namespace esd
