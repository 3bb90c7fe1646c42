// The tables of a job, and how large their rows are (ESD paper, section 8.2). A partial gradient, and a row's values
// alone, are not as large as the row, which carries the optimizer's state.
//
// With several tables the top 8 bits of an id are the number of its table (services/domain/ids.py), so that ascending
// ids are grouped by table. With one table an id is any number, and every row has size 1.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
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
  static constexpr std::size_t kMaxTables = 256;  // an id has 8 bits for them
  static constexpr double kMostShare = 16;        // what moves beside a gradient of one value is more than a row of it

  // How large a part of a row is by the whole, one number of each table; if there are none, 1.
  using Shares = std::vector<double>;

  // `of_tables` are the sizes of the tables' rows, 1..kMaxSize; if there are none, there is one table, with rows of size
  // 1. `gradient_shares` are those of partial gradients, `value_shares` those of values without optimizer state.
  explicit RowSizes(std::vector<std::uint32_t> of_tables, Shares gradient_shares = {}, Shares value_shares = {})
      : several_(!of_tables.empty()), of_tables_(std::move(of_tables)) {
    if (!several_) of_tables_.push_back(1);
    gradient_shares_ = checked(std::move(gradient_shares), kMostShare, "gradient");
    value_shares_ = checked(std::move(value_shares), 1, "value");
    distinct_ = of_tables_;
    std::sort(distinct_.begin(), distinct_.end());
    distinct_.erase(std::unique(distinct_.begin(), distinct_.end()), distinct_.end());
  }

  // Whether there is one table, so that all rows have size 1 and ids say nothing.
  bool uniform() const { return !several_; }
  std::size_t tables() const { return of_tables_.size(); }
  const std::vector<std::uint32_t>& of_tables() const { return of_tables_; }

  TableNumber table_of(std::uint64_t id) const { return several_ ? static_cast<TableNumber>(table_in(id)) : 0; }
  std::uint32_t of_table(TableNumber table) const { return of_tables_[table]; }
  std::uint32_t of_row(std::uint64_t id) const { return of_tables_[table_of(id)]; }

  // All sizes, ascending, and the rank of a table's among them.
  const std::vector<std::uint32_t>& distinct() const { return distinct_; }
  std::size_t rank(TableNumber table) const {
    const auto found = std::lower_bound(distinct_.begin(), distinct_.end(), of_tables_[table]);
    return static_cast<std::size_t>(found - distinct_.begin());
  }

  // How large a partial gradient, and a row's values alone, are by the row, by table.
  const Shares& gradient_shares() const { return gradient_shares_; }
  const Shares& value_shares() const { return value_shares_; }

  // Throws std::invalid_argument when an id names a table that is not there.
  void check(const std::uint64_t* ids, std::size_t count) const {
    if (!several_) return;
    const auto foreign = std::find_if(ids, ids + count, [&](auto id) { return table_in(id) >= of_tables_.size(); });
    if (foreign == ids + count) return;
    throw std::invalid_argument("id " + std::to_string(*foreign) + " is of table " +
                                std::to_string(table_in(*foreign)) + ", there are " +
                                std::to_string(of_tables_.size()));
  }

  // Tells a batch the sizes of its rows.
  void describe(PreparedBatch& batch) const {
    batch.sizes.clear();
    batch.mean_size = 1;
    if (!several_ && batch.begins.empty()) {
      batch.sample_size = batch.fields;
      return;
    }
    if (several_) {
      for (const std::uint64_t id : batch.ids) batch.sizes.push_back(of_row(id));
    }
    std::uint64_t all = 0;
    batch.sample_size = 0;
    for (std::size_t i = 0; i < batch.samples; ++i) {
      std::uint64_t size = batch.begin(i + 1) - batch.begin(i);
      if (several_) {
        size = 0;
        for (std::size_t at = batch.begin(i); at < batch.begin(i + 1); ++at) size += batch.sizes[batch.indices[at]];
      }
      batch.sample_size = std::max(batch.sample_size, size);
      all += size;
    }
    if (!batch.indices.empty()) batch.mean_size = static_cast<std::uint32_t>(all / batch.indices.size());
  }

 private:
  // `what` names the shares in errors.
  Shares checked(Shares shares, double most, const std::string& what) const {
    if (shares.empty()) shares.resize(of_tables_.size(), 1.0);
    if (shares.size() != of_tables_.size()) {
      throw std::invalid_argument(std::to_string(shares.size()) + " " + what + " shares for " +
                                  std::to_string(of_tables_.size()) + " tables");
    }
    for (const double share : shares) {
      if (share > 0 && share <= most) continue;
      throw std::invalid_argument(what + " share " + std::to_string(share) + " must be above 0, at most " +
                                  std::to_string(most));
    }
    return shares;
  }

  bool several_;
  std::vector<std::uint32_t> of_tables_;
  Shares gradient_shares_, value_shares_;
  std::vector<std::uint32_t> distinct_;
};

}  // namespace esd
