// The sizes of the tables' rows as Python gives them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/batch/row_sizes.h"

namespace esd {

// Throws std::invalid_argument when there are too many tables, or a size is out of range.
inline std::vector<std::uint32_t> check_table_sizes(const std::vector<std::int64_t>& table_sizes) {
  if (table_sizes.size() > RowSizes::kMaxTables) {
    throw std::invalid_argument(std::to_string(table_sizes.size()) + " tables, there may be " +
                                std::to_string(RowSizes::kMaxTables));
  }
  for (std::size_t t = 0; t < table_sizes.size(); ++t) {
    if (table_sizes[t] >= 1 && table_sizes[t] <= RowSizes::kMaxSize) continue;
    throw std::invalid_argument("the row size of table " + std::to_string(t) + " is " + std::to_string(table_sizes[t]) +
                                ", it must be in 1.." + std::to_string(RowSizes::kMaxSize));
  }
  return {table_sizes.begin(), table_sizes.end()};
}

}  // namespace esd
