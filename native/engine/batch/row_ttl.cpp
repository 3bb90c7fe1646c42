#include "engine/batch/row_ttl.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "engine/rows/row_state.h"

namespace esd {

RowTtl::RowTtl(std::vector<std::uint32_t> iterations, const RowSizes& sizes)
    : iterations_(std::move(iterations)),
      sizes_(sizes),
      active_(std::any_of(iterations_.begin(), iterations_.end(), [](auto each) { return each > 0; })),
      queues_(active_ ? sizes.tables() : 0) {
  if (iterations_.empty() || iterations_.size() == sizes.tables()) return;
  throw std::invalid_argument(std::to_string(iterations_.size()) + " row ttls for " + std::to_string(sizes.tables()) +
                              " tables");
}

void RowTtl::expire(const StateIndex& index, const PreparedBatch& batch, std::uint32_t now,
                    std::vector<RowNumber>& expired, Lives& lives) {
  expired.clear();
  if (!active()) return;
  for (std::size_t table = 0; table < queues_.size(); ++table) {
    const std::uint32_t ttl = iterations_[table];
    if (ttl == 0 || now < ttl) continue;
    for (RowNumber row; (row = queues_[table].take(index, now - ttl)) != kNoRow;) {
      expired.push_back(row);
      lives.forget(index[row]);
    }
    queues_[table].sweep(index);
  }
  for (std::size_t x = 0; x < batch.distinct(); ++x) {
    const TableNumber table = sizes_.table_of(batch.ids[x]);
    if (iterations_[table] > 0) queues_[table].add(batch.row_numbers[x], now);
  }
}

void RowTtl::restore(const StateIndex& index) {
  queues_.assign(queues_.size(), {});
  if (!active()) return;
  for (RowNumber row = 0; row < index.size(); ++row) {
    if (index[row].version == 0) continue;
    const TableNumber table = sizes_.table_of(index[row].id);
    if (iterations_[table] > 0) queues_[table].add(row, index[row].last_use);
  }
  for (TrainingQueue& queue : queues_) queue.sort(index);
}

std::size_t RowTtl::memory_bytes() const {
  return std::accumulate(queues_.begin(), queues_.end(), std::size_t{0},
                         [](std::size_t sum, const TrainingQueue& queue) { return sum + queue.memory_bytes(); });
}

}  // namespace esd
