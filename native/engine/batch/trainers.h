// Who trains which row under an assignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/workers.h"
#include "engine/batch/prepared_batch.h"
#include "engine/rows/index_types.h"

namespace esd {

// Throws std::invalid_argument when the worker of a sample, `assignment` [k], is not below `workers`.
void check_assignment(const PreparedBatch& batch, const std::int32_t* assignment, unsigned workers);

class Trainers {
 public:
  // `assignment` is the worker of each sample, [k]. Throws as `check_assignment` does.
  void assign(const PreparedBatch& batch, const std::int32_t* assignment, unsigned workers);

  // Lets all workers of a set that contains W_x train the row.
  void extend(BatchIndex x, WorkerSet workers) {
    (workers - of_rows_[x]).for_each([&](unsigned j) { ++rows_[j]; });
    of_rows_[x] = workers;
  }

  // The workers W_x that train a row.
  WorkerSet operator[](BatchIndex x) const { return of_rows_[x]; }

  // The samples of a worker, ascending.
  const std::vector<SampleIndex>& samples(unsigned worker) const { return samples_[worker]; }

  // The size of the rows U_j that each worker trains, together.
  std::vector<std::uint64_t> room(const PreparedBatch& batch) const;

 private:
  std::vector<WorkerSet> of_rows_;                 // by BatchIndex
  std::vector<std::vector<SampleIndex>> samples_;  // by worker
  std::vector<std::size_t> rows_;                  // by worker, how many rows it trains
};

}  // namespace esd
