// Rows of unequal size (ESD paper, section 8.2): each field of a sample has a size, and a row has that of the field in
// which it is first trained. A partial gradient is not as large as its row, which carries the optimizer's state.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/batch/prepared_batch.h"
#include "engine/rows/index_types.h"

namespace esd {

class RowSizes {
 public:
  static constexpr std::uint32_t kMaxSize = 0xffff;
  static constexpr double kMostShare = 16;  // what moves beside a gradient of one value is more than a row of it

  // `of_fields` are the sizes of the fields' rows, 1..kMaxSize. If there are none, all rows have size 1.
  // `gradient_shares` say how large a partial gradient is by its row: one number, or one of each field that has a size;
  // 1 if there are none.
  explicit RowSizes(std::vector<std::uint32_t> of_fields, const std::vector<double>& gradient_shares = {})
      : of_fields_(std::move(of_fields)), distinct_(of_fields_) {
    if (uniform()) distinct_.push_back(1);
    std::sort(distinct_.begin(), distinct_.end());
    distinct_.erase(std::unique(distinct_.begin(), distinct_.end()), distinct_.end());
    gradient_shares_.resize(distinct_.size(), 1.0);
    if (gradient_shares.empty()) return;
    if (gradient_shares.size() != std::max<std::size_t>(1, of_fields_.size())) {
      throw std::invalid_argument(std::to_string(gradient_shares.size()) + " gradient shares for " +
                                  std::to_string(of_fields_.size()) + " field sizes");
    }
    for (std::size_t f = 0; f < gradient_shares.size(); ++f) {
      if (!(gradient_shares[f] > 0 && gradient_shares[f] <= kMostShare)) {
        throw std::invalid_argument("gradient share " + std::to_string(gradient_shares[f]) +
                                    " must be above 0, at most " + std::to_string(kMostShare));
      }
      gradient_shares_[uniform() ? 0 : rank(of_fields_[f])] = gradient_shares[f];
    }
  }

  bool uniform() const { return of_fields_.empty(); }
  const std::vector<std::uint32_t>& of_fields() const { return of_fields_; }

  // The size of a row that was trained.
  std::uint32_t operator[](RowNumber row) const { return uniform() ? 1 : of_rows_[row]; }

  // All sizes, ascending, and the rank of one among them.
  const std::vector<std::uint32_t>& distinct() const { return distinct_; }
  std::size_t rank(std::uint32_t size) const {
    return static_cast<std::size_t>(std::lower_bound(distinct_.begin(), distinct_.end(), size) - distinct_.begin());
  }

  // How large a partial gradient is by its row, by rank of the row's size.
  const std::vector<double>& gradient_shares() const { return gradient_shares_; }
  double gradient_share(std::uint32_t size) const { return gradient_shares_[uniform() ? 0 : rank(size)]; }

  // Throws std::invalid_argument when a batch has another number of fields.
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
    for (const RowNumber row : batch.row_numbers) batch.sizes.push_back(row < of_rows_.size() ? of_rows_[row] : 0);
    for (std::size_t at = 0; at < batch.indices.size(); ++at) {
      std::uint32_t& size = batch.sizes[batch.indices[at]];
      if (size == 0) size = of_fields_[at % batch.fields];
    }
  }

  // Remembers the sizes of a batch that is trained. Row numbers are below `rows`.
  void learn(const PreparedBatch& batch, RowNumber rows) {
    if (uniform()) return;
    of_rows_.resize(rows);
    for (std::size_t x = 0; x < batch.distinct(); ++x) {
      of_rows_[batch.row_numbers[x]] = static_cast<std::uint16_t>(batch.sizes[x]);
    }
  }

  // The row has left the table; its number may be given to another one.
  void forget(RowNumber row) {
    if (!uniform()) of_rows_[row] = 0;
  }

  // For snapshots.
  const std::vector<std::uint16_t>& of_rows() const { return of_rows_; }
  void restore(std::vector<std::uint16_t>&& of_rows) { of_rows_ = std::move(of_rows); }

  std::size_t memory_bytes() const { return of_rows_.capacity() * sizeof(std::uint16_t); }

 private:
  std::vector<std::uint32_t> of_fields_;
  std::vector<std::uint32_t> distinct_;
  std::vector<double> gradient_shares_;  // by rank
  std::vector<std::uint16_t> of_rows_;   // by row number; 0 where the row was not trained yet
};

}  // namespace esd
