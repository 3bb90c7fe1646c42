// Who trains which row under an assignment: by row the set W_x, by worker its samples and how many rows it needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/batch/prepared_batch.h"

namespace esd {

class Trainers {
 public:
  // Worker of each sample, [k]. Throws std::invalid_argument when one is not below `workers`.
  void assign(const PreparedBatch& batch, const std::int32_t* assignment, unsigned workers);

  // W_x of a row, by its number.
  WorkerMask operator[](std::size_t number) const { return of_rows_[number]; }

  // Samples of a worker, ascending.
  const std::vector<std::uint32_t>& samples(unsigned worker) const { return samples_[worker]; }

  // Rows that each worker needs, the size of U_j; and the sizes of these rows together.
  const std::vector<std::size_t>& lookups() const { return lookups_; }
  std::vector<std::uint64_t> room(const PreparedBatch& batch) const;

 private:
  std::vector<WorkerMask> of_rows_;
  std::vector<std::vector<std::uint32_t>> samples_;
  std::vector<std::size_t> lookups_;
};

}  // namespace esd
