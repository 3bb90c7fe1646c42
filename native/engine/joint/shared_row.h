// What a row that several samples use costs, as a function of the workers that train it.
//
// Let M be these workers, h the owner if there is one, p how likely the row is used again, g how large a partial
// gradient is by its row, v how large its values are without optimizer state. For a row of size 1 the cost is
//
//   M = {j}:    [j lacks the latest] T_j + [h exists and is not j] T_h
//   |M| >= 2:   [h exists] T_h + sum over j in M of [j lacks the latest] v T_j + p g T_j
//
// and it is in proportion to the size. With two or more trainers the row is split: each of them needs its values alone,
// and pushes a partial gradient if it is used again. A row that was not trained has no state: it costs v T_j in any case.
//
// Where it is planned that the set N trains the row next, p is 1, and M = {j} also pays for what depends on j in that
// training:
//
//   [N is not {j}] T_j - [N is {j}] T_j - [j in N and others, too] v T_j
//
// since j pushes if others train the row, and saves its pull.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/workers.h"
#include "engine/batch/row_sizes.h"
#include "engine/joint/reuse.h"
#include "engine/rows/index_types.h"

namespace esd {

// Link costs in lanes for vector registers, one of `Width` lanes per worker. They are integers in fixed point, so that
// sums are exact. Lanes without a worker cost nothing and have no capacity.
template <unsigned Width>
struct JointLinks {
  double scale = 64;                // what a link cost of 1 is here, a power of two
  std::int32_t pull[Width] = {};    // T_j
  std::vector<std::int32_t> again;  // [tables, classes of reuse, Width], p g T_j: a gradient will be pushed
  std::vector<std::int32_t> value;  // [tables, Width], v T_j: the values are pulled
  std::int32_t nothing[Width] = {};

  JointLinks(const std::int32_t* link_costs, unsigned workers, std::uint64_t sample_size, const RowSizes& sizes,
             const ReuseStatistics& reuse)
      : again(sizes.tables() * ReuseStatistics::kClasses * Width), value(sizes.tables() * Width) {
    const std::vector<double>& shares = sizes.gradient_shares();
    // A row of size 1 adds at most T_j + p g T_j + p g T_q + T_h + T_q to the cost of a sample, v is at most 1, and the
    // solver takes costs below 2^28.
    const double most = 3 + 2 * *std::max_element(shares.begin(), shares.end());
    const double highest = *std::max_element(link_costs, link_costs + workers);
    while (most * highest * static_cast<double>(sample_size) * scale >= 0x1p28) scale /= 2;
    for (unsigned j = 0; j < workers; ++j) pull[j] = static_cast<std::int32_t>(std::lround(link_costs[j] * scale));
    std::int32_t* costs = again.data();
    for (const double share : shares) {
      for (std::uint32_t c = 0; c < ReuseStatistics::kClasses; ++c, costs += Width) {
        const double expected = share * (c == ReuseStatistics::kCertain ? 1.0 : reuse.probability(c));
        for (unsigned j = 0; j < workers; ++j) costs[j] = static_cast<std::int32_t>(std::lround(expected * pull[j]));
      }
    }
    costs = value.data();
    for (const double share : sizes.value_shares()) {
      for (unsigned j = 0; j < workers; ++j) costs[j] = static_cast<std::int32_t>(std::lround(share * pull[j]));
      costs += Width;
    }
  }

  // p g T_j of every worker, [Width], for rows of a table and a class of reuse.
  const std::int32_t* pushed_again(std::uint32_t table_and_reuse) const {
    return &again[table_and_reuse * std::size_t{Width}];
  }

  // v T_j of every worker, [Width], for rows of a table.
  const std::int32_t* pulled_values(TableNumber table) const { return &value[table * std::size_t{Width}]; }

  // What a pull costs every worker that trains a row of the table alone, [Width]; `fresh` if it was never trained.
  const std::int32_t* pulled_alone(bool fresh, TableNumber table) const { return fresh ? pulled_values(table) : pull; }
};

struct SharedRow {
  WorkerSet latest;         // workers that need no pull
  WorkerSet trainers;       // M as the samples are placed now
  WorkerSet priced_for;     // M for which the row's added costs were last computed
  std::int32_t owner_cost;  // T_h for a row of size 1, 0 without an owner
  std::uint32_t again;      // its table and class of reuse, with this iteration's training counted
  std::int32_t size;
  std::uint8_t owner;  // h, or kNobody
  TableNumber table;
  bool fresh;      // it was never trained
  WorkerSet next;  // N, empty if it is not planned

  static constexpr std::uint8_t kNobody = kMaxWorkers;
};

// What it adds, for a row of size 1, to the costs of its next training by `next` that `worker` alone trains it now.
template <unsigned Width>
std::int32_t next_cost(WorkerSet next, const JointLinks<Width>& links, TableNumber table, unsigned worker) {
  if (next.empty()) return 0;
  if (next == WorkerSet::only(worker)) return -links.pull[worker];
  return links.pull[worker] - (next.contains(worker) ? links.pulled_values(table)[worker] : 0);
}

// What is added, for a row of size 1, whichever worker outside M joins: a newcomer makes the owner push, or splits the
// row of the first trainer, which pulls no more than its values then.
template <unsigned Width>
std::int32_t common_cost(const SharedRow& row, const JointLinks<Width>& links, WorkerSet trainers) {
  if (trainers.empty()) return row.owner_cost;
  if (trainers.several()) return 0;
  const auto alone = static_cast<std::uint32_t>(trainers.first());
  const std::int32_t push = alone == row.owner ? row.owner_cost : 0;
  const std::int32_t state = links.pulled_alone(row.fresh, row.table)[alone] - links.pulled_values(row.table)[alone];
  const std::int32_t saved = row.latest.contains(alone) ? 0 : state;
  return links.pushed_again(row.again)[alone] + push - saved - next_cost(row.next, links, row.table, alone);
}

// What it adds to the row's cost that `worker` joins `trainers`.
template <unsigned Width>
std::int32_t added_cost(const SharedRow& row, const JointLinks<Width>& links, WorkerSet trainers, unsigned worker) {
  if (trainers.contains(worker)) return 0;
  if (trainers.empty() && worker == row.owner) return row.size * next_cost(row.next, links, row.table, worker);
  const std::int32_t* const pulls = links.pulled_alone(row.fresh | !trainers.empty(), row.table);
  const std::int32_t pull = row.latest.contains(worker) ? 0 : pulls[worker];
  const std::int32_t later =
      trainers.empty() ? next_cost(row.next, links, row.table, worker) : links.pushed_again(row.again)[worker];
  return row.size * (pull + later + common_cost(row, links, trainers));
}

// What the row costs at its trainers: the same in whichever order they join.
template <unsigned Width>
std::int64_t placed_cost(const SharedRow& row, const JointLinks<Width>& links) {
  std::int64_t cost = 0;
  WorkerSet before{};
  row.trainers.for_each([&](int j) {
    cost += added_cost(row, links, before, static_cast<unsigned>(j));
    before.add(j);
  });
  return cost;
}

// costs[j] += pull[j] for every worker that lacks the latest, + `common`.
template <unsigned Width>
[[gnu::always_inline]] inline void add_pulls(WorkerSet latest, const std::int32_t* pull, std::int32_t common,
                                             std::int32_t* costs) {
  for (unsigned first = 0; first < Width; first += 32) {
    const auto lacks = static_cast<std::uint32_t>(~latest.bits >> first);
    for (unsigned j = 0; j < 32 && first + j < Width; ++j) {
      costs[first + j] += (-static_cast<std::int32_t>(lacks >> j & 1) & pull[first + j]) + common;
    }
  }
}

// costs[j] += `next_cost` of every worker.
template <unsigned Width>
[[gnu::always_inline]] inline void add_next(WorkerSet next, const JointLinks<Width>& links, TableNumber table,
                                            std::int32_t* costs) {
  if (next.empty()) return;
  for (unsigned j = 0; j < Width; ++j) costs[j] += links.pull[j];
  const std::int32_t* const saved = links.pulled_values(table);
  if (next.several()) return next.for_each([&](int j) { costs[j] -= saved[j]; });
  costs[next.first()] -= 2 * links.pull[next.first()];
}

// costs[j] = `added_cost` of every worker.
template <unsigned Width>
[[gnu::always_inline]] inline void added_costs(const SharedRow& row, const JointLinks<Width>& links,
                                               std::int32_t* costs) {
  const bool first = row.trainers.empty();
  const std::int32_t* again = first ? links.nothing : links.pushed_again(row.again);
  for (unsigned j = 0; j < Width; ++j) costs[j] = again[j];
  const std::int32_t* pull = links.pulled_alone(row.fresh | !first, row.table);
  add_pulls<Width>(row.latest, pull, common_cost(row, links, row.trainers), costs);
  if (first) {
    if (row.owner != SharedRow::kNobody) costs[row.owner] = 0;
    add_next(row.next, links, row.table, costs);
  }
  row.trainers.for_each([&](int j) { costs[j] = 0; });
  if (row.size == 1) return;
  for (unsigned j = 0; j < Width; ++j) costs[j] *= row.size;
}

}  // namespace esd
