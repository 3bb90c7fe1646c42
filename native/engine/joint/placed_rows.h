// The rows at one worker in a transportation problem, and the least that moving one of them to each other worker adds.
//
// Rows stand in blocks, each with the cheapest moves of its own rows. When rows leave, only their blocks are computed
// anew, so the work follows the rows that move and hardly those that stay.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/joint/cheapest_moves.h"

namespace esd {

template <unsigned Width>
class PlacedRows {
 public:
  // Starts without rows at `worker`. `costs` [rows, Width] are those of the problem, the caller's.
  void begin(const std::int32_t* costs, unsigned worker) {
    costs_ = costs;
    worker_ = worker;
    blocks_.clear();
    std::fill_n(moves_, Width, kFar);
  }

  // moves()[j] is the least that moving a row to worker j adds to the cost; kFar as long as there is no row.
  const std::int32_t* moves() const { return moves_; }

  // Adds rows, whose moves count at once.
  void add(const int* rows, std::size_t count) {
    lower_moves<Width>(costs_, rows, count, worker_, moves_);
    for (std::size_t begin = 0; begin < count;) {
      if (blocks_.empty() || blocks_.back().count == kBlockRows) blocks_.emplace_back();
      Block& block = blocks_.back();
      const std::size_t added = std::min<std::size_t>(kBlockRows - block.count, count - begin);
      std::copy_n(rows + begin, added, block.rows + block.count);
      lower_moves<Width>(costs_, rows + begin, added, worker_, block.moves);
      block.count += static_cast<unsigned>(added);
      begin += added;
    }
  }

  // How many rows move to worker `to` at the least cost, `limit` at most.
  std::size_t count_cheapest(unsigned to, std::size_t limit) const {
    std::size_t count = 0;
    for (const Block& block : blocks_) {
      if (block.moves[to] != moves_[to]) continue;
      for (unsigned r = 0; r < block.count; ++r) count += is_cheapest(block.rows[r], to);
      if (count >= limit) return limit;
    }
    return count;
  }

  // Moves the first `amount` of these rows to `taken`.
  void take_cheapest(unsigned to, std::size_t amount, std::vector<int>& taken) {
    const auto leaves = [&](int row) {
      if (taken.size() == amount || !is_cheapest(row, to)) return false;
      taken.push_back(row);
      return true;
    };
    for (Block& block : blocks_) {
      if (taken.size() == amount) break;
      if (block.moves[to] != moves_[to]) continue;
      block.count = static_cast<unsigned>(std::remove_if(block.rows, block.rows + block.count, leaves) - block.rows);
      std::fill_n(block.moves, Width, kFar);
      lower_moves<Width>(costs_, block.rows, block.count, worker_, block.moves);
    }
    std::fill_n(moves_, Width, kFar);
    for (const Block& block : blocks_) lower<Width>(block.moves, moves_);
  }

  // Calls `visit(row)` for every row.
  template <typename Visit>
  void for_each(Visit visit) const {
    for (const Block& block : blocks_) std::for_each(block.rows, block.rows + block.count, visit);
  }

 private:
  static constexpr unsigned kBlockRows = 16;

  struct Block {
    Block() { std::fill_n(moves, Width, kFar); }

    unsigned count = 0;
    int rows[kBlockRows];       // the first `count` are in use
    std::int32_t moves[Width];  // of these rows
  };

  bool is_cheapest(int row, unsigned to) const {
    const std::int32_t* const costs = costs_ + static_cast<std::size_t>(row) * Width;
    return costs[to] - costs[worker_] == moves_[to];
  }

  const std::int32_t* costs_ = nullptr;
  unsigned worker_ = 0;
  std::vector<Block> blocks_;
  std::int32_t moves_[Width];
};

}  // namespace esd
