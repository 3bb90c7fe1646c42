// What an assignment of the prepared batch would train and move, told before it is planned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/workers.h"
#include "engine/batch/prepared_batch.h"
#include "engine/batch/row_sizes.h"
#include "engine/rows/row_state.h"

namespace esd {

// By worker, in units of row size, without pinned rows, which have their room and do not move. `moved` leaves evictions
// out, which are not known before.
struct Preview {
  std::vector<std::int64_t> trained;  // the distinct rows of its samples
  std::vector<double> moved;          // its pulls and update pushes; parts of rows are smaller than whole ones
};

// `assignment` has the worker of each of the batch's first samples; those behind them are of later batches. With
// `pushed_next`, what is pushed after the training counts. Workers that train a row `together` each have a part of it;
// else each trains a copy of its own.
inline Preview preview(const PreparedBatch& batch, const RowSizes& sizes, const std::int32_t* assignment,
                       std::size_t samples, unsigned workers, bool pushed_next, bool together) {
  std::vector<WorkerSet> trainers(batch.distinct());
  const BatchIndex* indices = batch.indices.data();
  for (std::size_t i = 0; i < samples; ++i) {
    for (const BatchIndex* const end = batch.indices.data() + batch.begin(i + 1); indices < end;) {
      trainers[*indices++].add(assignment[i]);
    }
  }
  Preview result{std::vector<std::int64_t>(workers), std::vector<double>(workers)};
  for (std::size_t x = 0; x < batch.distinct(); ++x) {
    if (trainers[x].empty()) continue;  // only a later batch needs the row
    const RowState& row = batch.states[x];
    if (row.pinned) continue;
    const std::uint32_t size = batch.size(static_cast<BatchIndex>(x));
    const TableNumber table = sizes.table_of(row.id);
    const double share = sizes.gradient_shares()[table];
    trainers[x].for_each([&](int j) { result.trained[j] += size; });
    const bool split = row.kind == kSplit, others_train = !(trainers[x] - row.holders).empty();
    if (split || (row.kind == kOwned && others_train)) {
      const double pushed = split ? share * size : size;
      row.holders.for_each([&](int j) { result.moved[j] += pushed; });
    }
    const bool in_parts = together && trainers[x].several();
    const double pulled = in_parts || row.trainings == 0 ? sizes.value_shares()[table] * size : size;
    (trainers[x] - row.latest()).for_each([&](int j) { result.moved[j] += pulled; });
    if (!pushed_next) continue;
    const double pushed = in_parts || !together ? share * size : size;
    trainers[x].for_each([&](int j) { result.moved[j] += pushed; });
  }
  return result;
}

}  // namespace esd
