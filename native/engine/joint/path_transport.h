// The transportation problem by successive shortest paths, for many workers.
//
// Rows start at a worker whose cost + price is least, so that complementary slackness holds; the prices of a similar
// problem leave few workers with more rows than they may have. The surplus then moves along shortest paths to workers
// with room, in the graph of workers whose arcs are the cheapest moves of a row. Only the arcs of workers whose rows
// changed are computed anew.
//
// Nothing overflows: costs span less than kSpan, and start prices are cut to it. A worker with room keeps its start
// price, since paths end there; a row at another worker costs there, price included, at most what it would cost at one
// with room. So prices stay below 2 kSpan, paths to the nearest worker with room too, and one more arc adds 3 kSpan.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "common/workers.h"
#include "engine/joint/cheapest_moves.h"
#include "engine/joint/placed_rows.h"

namespace esd {

template <unsigned Width>
class PathTransport {
  static_assert(Width <= kMaxWorkers, "a set of workers must hold all lanes");

 public:
  // As `Transport::solve`; `assignment` has as many elements as there are rows.
  void solve(const std::vector<std::int32_t>& costs, const int* capacities, std::int32_t* prices,
             std::vector<int>& assignment) {
    costs_ = costs.data();
    begin(capacities, prices);
    spread(static_cast<int>(assignment.size()));
    for (unsigned j = 0; j < Width; ++j) {
      if (capacities[j] == 0) prices_[j] = 0;  // it has kept rows away; `closed_` keeps paths away
    }
    for (int target = nearest_with_room(); target >= 0; target = nearest_with_room()) {
      raise_prices(distances_[target]);
      move_surplus(static_cast<unsigned>(target));
    }
    for (unsigned j = 0; j < Width; ++j) {
      if (capacities[j] > 0) prices[j] = prices_[j];
      rows_of_[j].for_each([&](int row) { assignment[static_cast<std::size_t>(row)] = static_cast<int>(j); });
    }
  }

 private:
  // A row that costs the same at several workers, prices included.
  struct TiedRow {
    int row;
    WorkerSet workers;
  };
  static constexpr std::int32_t kSpan = std::int32_t{3} << 27;  // costs are below 2^28, and above minus a third of it

  // Empties the workers. Start prices count from the least, since only differences matter.
  void begin(const int* capacities, const std::int32_t* prices) {
    std::int32_t least = std::numeric_limits<std::int32_t>::max();
    for (unsigned j = 0; j < Width; ++j) {
      if (capacities[j] > 0) least = std::min(least, prices[j]);
    }
    for (unsigned j = 0; j < Width; ++j) {
      room_[j] = capacities[j];
      prices_[j] = capacities[j] > 0 ? std::min(prices[j] - least, kSpan) : kFar;
      closed_[j] = capacities[j] > 0 ? 0 : kNever;
      rows_of_[j].begin(costs_, j);
      first_rows_[j].clear();
    }
  }

  // Places every row where it costs least, prices included; of several such workers, where there is most room.
  void spread(int rows) {
    tied_.clear();
    for (int i = 0; i < rows; ++i) {
      const std::int32_t* const row = row_at(i);
      const std::int32_t least = least_sum<Width>(row, prices_);
      WorkerSet workers{};
      for (unsigned j = 0; j < Width; ++j) workers.bits |= WorkerBits{row[j] + prices_[j] == least} << j;
      if (workers.several()) {
        tied_.push_back({i, workers});
      } else {
        place(i, workers.first());
      }
    }
    for (const TiedRow& tied : tied_) {
      int roomiest = tied.workers.first();
      tied.workers.for_each([&](int j) {
        if (room_[j] > room_[roomiest]) roomiest = j;
      });
      place(tied.row, roomiest);
    }
    for (unsigned j = 0; j < Width; ++j) rows_of_[j].add(first_rows_[j].data(), first_rows_[j].size());
  }

  void place(int row, int worker) {
    first_rows_[worker].push_back(row);
    --room_[worker];
  }

  // Dijkstra's algorithm from all workers with surplus. Returns the nearest worker with room, where it ends; -1 if there
  // is no surplus.
  int nearest_with_room() {
    std::int32_t settled[Width];
    bool surplus = false;
    for (unsigned j = 0; j < Width; ++j) {
      distances_[j] = room_[j] < 0 ? 0 : kNever;
      parents_[j] = kSource;
      settled[j] = closed_[j];
      surplus |= room_[j] < 0;
    }
    if (!surplus) return -1;
    for (;;) {
      const std::int32_t distance = least_open<Width>(distances_, settled);
      unsigned nearest = 0;
      while (std::max(distances_[nearest], settled[nearest]) != distance) ++nearest;
      if (room_[nearest] > 0) return static_cast<int>(nearest);
      settled[nearest] = kNever;
      relax<Width>(rows_of_[nearest].moves(), prices_, distance - prices_[nearest], static_cast<std::int32_t>(nearest),
                   distances_, parents_);
    }
  }

  // Makes the path of this length tight, and keeps every row where it costs least.
  void raise_prices(std::int32_t length) {
    for (unsigned j = 0; j < Width; ++j) {
      if (closed_[j] == 0) prices_[j] += std::max(length - distances_[j], 0);
    }
  }

  // Moves as many rows along the path to `target` as are equally cheap on its every arc.
  void move_surplus(unsigned target) {
    std::size_t amount = static_cast<std::size_t>(room_[target]);
    unsigned source = target;
    for (; parents_[source] != kSource; source = parent(source)) {
      amount = rows_of_[parent(source)].count_cheapest(source, amount);
    }
    amount = std::min(amount, static_cast<std::size_t>(-room_[source]));
    for (unsigned to = target; to != source; to = parent(to)) {
      moving_.clear();
      rows_of_[parent(to)].take_cheapest(to, amount, moving_);
      rows_of_[to].add(moving_.data(), moving_.size());
    }
    room_[source] += static_cast<int>(amount);
    room_[target] -= static_cast<int>(amount);
  }

  const std::int32_t* row_at(int row) const { return costs_ + static_cast<std::size_t>(row) * Width; }
  unsigned parent(unsigned worker) const { return static_cast<unsigned>(parents_[worker]); }

  static constexpr std::int32_t kSource = -1;

  const std::int32_t* costs_ = nullptr;  // [rows, Width], the caller's
  PlacedRows<Width> rows_of_[Width];     // by worker
  std::vector<int> first_rows_[Width];   // by worker, those that start there
  std::int32_t room_[Width];             // for how many rows a worker has room yet; negative where it has surplus
  std::int32_t prices_[Width];           // duals, not negative
  std::int32_t distances_[Width];        // of the last search, to each worker
  std::int32_t parents_[Width];          // the workers before them, kSource where a path starts
  std::int32_t closed_[Width];           // kNever for a worker without capacity, otherwise 0
  std::vector<TiedRow> tied_;
  std::vector<int> moving_;
};

}  // namespace esd
