#include "engine/batch/trainers.h"

#include <stdexcept>
#include <string>

namespace esd {

void Trainers::assign(const PreparedBatch& batch, const std::int32_t* assignment, unsigned workers) {
  of_rows_.assign(batch.distinct(), 0);
  lookups_.assign(workers, 0);
  samples_.resize(workers);
  for (auto& samples : samples_) samples.clear();
  const std::uint32_t* numbers = batch.numbers.data();
  for (std::size_t i = 0; i < batch.samples; ++i, numbers += batch.fields) {
    if (assignment[i] < 0 || assignment[i] >= static_cast<int>(workers)) {
      throw std::invalid_argument("sample " + std::to_string(i) + " is assigned to worker " +
                                  std::to_string(assignment[i]) + ", it must be in 0.." + std::to_string(workers - 1));
    }
    const auto j = static_cast<unsigned>(assignment[i]);
    samples_[j].push_back(static_cast<std::uint32_t>(i));
    std::size_t lookups = 0;
    for (std::size_t f = 0; f < batch.fields; ++f) {
      const WorkerMask trainers = of_rows_[numbers[f]];
      lookups += ~trainers >> j & 1;
      of_rows_[numbers[f]] = trainers | worker_bit(j);
    }
    lookups_[j] += lookups;
  }
}

std::vector<std::uint64_t> Trainers::room(const PreparedBatch& batch) const {
  if (batch.sizes.empty()) return {lookups_.begin(), lookups_.end()};
  std::vector<std::uint64_t> room(lookups_.size());
  for (std::size_t x = 0; x < batch.distinct(); ++x) {
    for_each_worker(of_rows_[x], [&](unsigned j) { room[j] += batch.sizes[x]; });
  }
  return room;
}

}  // namespace esd
