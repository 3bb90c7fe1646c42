// Rows of unequal size (ESD paper, section 8.2): each field of a sample has one, a row that of the field in which it is
// first trained.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/batch/prepared_batch.h"

namespace esd {

class RowSizes {
 public:
  static constexpr std::uint32_t kMaxSize = 0xffff;

  // Sizes of the fields' rows, 1..kMaxSize; none: all rows have size 1.
  explicit RowSizes(std::vector<std::uint32_t> of_fields) : of_fields_(std::move(of_fields)), distinct_(of_fields_) {
    if (uniform()) distinct_.push_back(1);
    std::sort(distinct_.begin(), distinct_.end());
    distinct_.erase(std::unique(distinct_.begin(), distinct_.end()), distinct_.end());
  }

  bool uniform() const { return of_fields_.empty(); }
  const std::vector<std::uint32_t>& of_fields() const { return of_fields_; }

  // Of a row that was trained, by its number in the state index.
  std::uint32_t operator[](std::uint32_t row) const { return uniform() ? 1 : of_rows_[row]; }

  // All sizes, ascending, and where among them one is.
  const std::vector<std::uint32_t>& distinct() const { return distinct_; }
  std::size_t place(std::uint32_t size) const {
    return static_cast<std::size_t>(std::lower_bound(distinct_.begin(), distinct_.end(), size) - distinct_.begin());
  }

  void check(std::size_t fields) const {
    if (uniform() || fields == of_fields_.size()) return;
    throw std::invalid_argument("the batch has " + std::to_string(fields) + " fields, row sizes are known of " +
                                std::to_string(of_fields_.size()));
  }

  // Tells a batch the sizes of its rows.
  void describe(PreparedBatch& batch) const {
    batch.sizes.clear();
    batch.sample_size = batch.fields;
    if (uniform()) return;
    batch.sample_size = std::accumulate(of_fields_.begin(), of_fields_.end(), std::uint64_t{0});
    for (const std::uint32_t row : batch.rows) batch.sizes.push_back(row < of_rows_.size() ? of_rows_[row] : 0);
    for (std::size_t at = 0; at < batch.numbers.size(); ++at) {
      std::uint32_t& size = batch.sizes[batch.numbers[at]];
      if (size == 0) size = of_fields_[at % batch.fields];
    }
  }

  // Remembers the sizes of a batch that is trained; `rows`: of the state index.
  void learn(const PreparedBatch& batch, std::uint32_t rows) {
    if (uniform()) return;
    of_rows_.resize(rows);
    for (std::size_t x = 0; x < batch.distinct(); ++x) {
      of_rows_[batch.rows[x]] = static_cast<std::uint16_t>(batch.sizes[x]);
    }
  }

  // The row has left; its number may be given to another one.
  void forget(std::uint32_t row) {
    if (!uniform()) of_rows_[row] = 0;
  }

  // Snapshot.
  const std::vector<std::uint16_t>& of_rows() const { return of_rows_; }
  void restore(std::vector<std::uint16_t>&& of_rows) { of_rows_ = std::move(of_rows); }

  std::size_t memory_bytes() const { return of_rows_.capacity() * sizeof(std::uint16_t); }

 private:
  std::vector<std::uint32_t> of_fields_;
  std::vector<std::uint32_t> distinct_;
  std::vector<std::uint16_t> of_rows_;  // by row number; 0: not trained yet
};

}  // namespace esd
