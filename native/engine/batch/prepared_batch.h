// A batch with every id looked up once: everything that is computed about a batch works on small dense numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/batch/batch_ids.h"
#include "engine/rows/index_types.h"
#include "engine/rows/row_state.h"
#include "engine/rows/state_index.h"

namespace esd {

struct PreparedBatch : BatchIds {
  std::vector<RowNumber> row_numbers;  // [distinct], in the state index
  std::vector<RowState> states;        // [distinct], checked out of the state index
  std::vector<std::uint32_t> sizes;    // [distinct], of the rows; empty when there is one table
  std::uint64_t sample_size = 0;       // of the rows of a sample together, at most; repeats count
  std::uint32_t mean_size = 1;         // of the rows that samples use, rounded down

  std::uint32_t size(BatchIndex x) const { return sizes.empty() ? 1 : sizes[x]; }

  // Checks the states of its ids out of the index, to which unseen ids are added.
  void look_up(StateIndex& index) {
    row_numbers.resize(distinct());
    states.resize(distinct());
    index.check_out(ids.data(), distinct(), row_numbers.data(), states.data());
  }

  std::size_t memory_bytes() const {
    return BatchIds::memory_bytes() + states.capacity() * sizeof(RowState) +
           (row_numbers.capacity() + sizes.capacity()) * sizeof(std::uint32_t);
  }
};

}  // namespace esd
