// Where rows were trained so far: how often each worker trained each row, counted from the first question on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/batch/prepared_batch.h"
#include "engine/batch/trainers.h"
#include "engine/rows/index_types.h"

namespace esd {

class TrainingHistory {
 public:
  static constexpr std::int32_t kWhole = 1 << 12;  // the share of a worker that has trained a row each time

  explicit TrainingHistory(unsigned workers) : workers_(workers) {}

  // out[i, j], int32 [k, workers]: worker j's shares of the trainings of sample i's distinct rows, added up. The first
  // call begins to count, and finds no training.
  void shares(const PreparedBatch& batch, std::int32_t* out) {
    counting_ = true;
    std::vector<std::int32_t> of_rows((batch.distinct() + 1) * workers_);  // the entry behind the last row: all zero
    for (std::size_t x = 0; x < batch.distinct(); ++x) {
      const std::size_t row = batch.row_numbers[x] * std::size_t{workers_};
      if (row >= trainings_.size()) continue;
      const std::uint32_t* counts = &trainings_[row];
      const std::uint64_t all = std::accumulate(counts, counts + workers_, std::uint64_t{0});
      for (unsigned j = 0; all > 0 && j < workers_; ++j) {
        of_rows[x * workers_ + j] = static_cast<std::int32_t>(counts[j] * std::uint64_t{kWhole} / all);
      }
    }
    const BatchIndex* indices = batch.without_repeats();
    for (std::size_t i = 0; i < batch.samples; ++i, out += workers_) {
      for (unsigned j = 0; j < workers_; ++j) out[j] = 0;
      for (const BatchIndex* const end = batch.without_repeats() + batch.begin(i + 1); indices < end;) {
        const std::int32_t* of_row = &of_rows[*indices++ * std::size_t{workers_}];
        for (unsigned j = 0; j < workers_; ++j) out[j] += of_row[j];
      }
    }
  }

  // Counts a batch that is trained. Row numbers are below `rows`.
  void train(const PreparedBatch& batch, const Trainers& trainers, RowNumber rows) {
    if (!counting_) return;
    trainings_.resize(rows * std::size_t{workers_});
    for (BatchIndex x = 0; x < batch.distinct(); ++x) {
      std::uint32_t* counts = &trainings_[batch.row_numbers[x] * std::size_t{workers_}];
      trainers[x].for_each([&](int j) { ++counts[j]; });
    }
  }

  // The row has left the table; its number may be given to another one.
  void forget(RowNumber row) {
    const std::size_t begin = row * std::size_t{workers_};
    for (std::size_t j = begin; j < begin + workers_ && j < trainings_.size(); ++j) trainings_[j] = 0;
  }

  // For snapshots: [rows, workers], empty where nothing is counted. Counts of other workers are no counts of these.
  const std::vector<std::uint32_t>& trainings() const { return trainings_; }
  void restore(std::vector<std::uint32_t>&& trainings, bool same_workers) {
    trainings_ = same_workers ? std::move(trainings) : std::vector<std::uint32_t>{};
    counting_ = !trainings_.empty();
  }

  std::size_t memory_bytes() const { return trainings_.capacity() * sizeof(std::uint32_t); }

 private:
  unsigned workers_;
  bool counting_ = false;
  std::vector<std::uint32_t> trainings_;  // [rows, workers]
};

}  // namespace esd
