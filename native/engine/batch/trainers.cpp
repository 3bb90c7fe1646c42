#include "engine/batch/trainers.h"

#include <stdexcept>
#include <string>

namespace esd {

void check_assignment(const PreparedBatch& batch, const std::int32_t* assignment, unsigned workers) {
  for (std::size_t i = 0; i < batch.samples; ++i) {
    if (assignment[i] >= 0 && assignment[i] < static_cast<int>(workers)) continue;
    throw std::invalid_argument("sample " + std::to_string(i) + " is assigned to worker " +
                                std::to_string(assignment[i]) + ", it must be in 0.." + std::to_string(workers - 1));
  }
}

void Trainers::assign(const PreparedBatch& batch, const std::int32_t* assignment, unsigned workers) {
  check_assignment(batch, assignment, workers);
  of_rows_.assign(batch.distinct(), WorkerSet{});
  rows_.assign(workers, 0);
  samples_.resize(workers);
  for (auto& samples : samples_) samples.clear();
  const BatchIndex* indices = batch.indices.data();
  for (std::size_t i = 0; i < batch.samples; ++i) {
    const auto j = static_cast<unsigned>(assignment[i]);
    samples_[j].push_back(static_cast<SampleIndex>(i));
    std::size_t rows = 0;
    for (const BatchIndex* const end = batch.indices.data() + batch.begin(i + 1); indices < end; ++indices) {
      const WorkerSet trainers = of_rows_[*indices];
      rows += !trainers.contains(j);
      of_rows_[*indices] = trainers | WorkerSet::only(j);
    }
    rows_[j] += rows;
  }
}

std::vector<std::uint64_t> Trainers::room(const PreparedBatch& batch) const {
  if (batch.sizes.empty()) return {rows_.begin(), rows_.end()};
  std::vector<std::uint64_t> room(rows_.size());
  const auto distinct = static_cast<BatchIndex>(batch.distinct());
  for (BatchIndex x = 0; x < distinct; ++x) {
    of_rows_[x].for_each([&](unsigned j) { room[j] += batch.sizes[x]; });
  }
  return room;
}

}  // namespace esd
