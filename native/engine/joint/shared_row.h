// What a row that several samples use costs, as a function of the workers that train it; times its size.
//
// Let M be these workers, h the owner if there is one, p how likely the row is used again.
//   M = {j}:    [j lacks the latest] T_j + [h exists and is not j] T_h
//   |M| >= 2:   [h exists] T_h + sum over j in M of [j lacks the latest] T_j + p T_j
// With two or more trainers the row is split: each of them pushes a partial gradient if it is used again.
//
// Where it is planned that N trains the row next, p is 1, and M = {j} also pays for that training what depends on j:
//   [N is not {j}] T_j - [j in N] T_j
// since j pushes if others train the row, and saves its pull.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "engine/joint/reuse.h"
#include "engine/rows/row_state.h"

namespace esd {

// Link costs: integers in fixed point, so that sums are exact, in lanes for vector registers.
//
// `Width` lanes, one per worker; lanes without a worker cost nothing and have no capacity.
template <unsigned Width>
struct JointLinks {
  double scale = 64;                                          // a link cost of 1 here, a power of two
  std::int32_t pull[Width] = {};                              // T_j
  std::int32_t again[ReuseStatistics::kClasses][Width] = {};  // p_c T_j: a partial gradient will be pushed
  std::int32_t nothing[Width] = {};

  JointLinks(const std::int32_t* link_costs, unsigned workers, std::uint64_t sample_size,
             const ReuseStatistics& reuse) {
    // A row of size 1 adds at most T_j + p T_j + p T_q + T_h + T_q to the cost of a sample; the solver takes costs below 2^28.
    const double highest = *std::max_element(link_costs, link_costs + workers);
    while (5 * highest * static_cast<double>(sample_size) * scale >= 0x1p28) scale /= 2;
    for (unsigned j = 0; j < workers; ++j) {
      pull[j] = again[ReuseStatistics::kCertain][j] = static_cast<std::int32_t>(std::lround(link_costs[j] * scale));
      for (std::uint32_t c = 1; c < ReuseStatistics::kClasses; ++c) {
        again[c][j] = static_cast<std::int32_t>(std::lround(reuse.probability(c) * pull[j]));
      }
    }
  }
};

struct SharedRow {
  WorkerMask latest;        // workers that need no pull
  WorkerMask trainers;      // M as the samples are placed now
  WorkerMask priced_for;    // M for which the row's added costs were last computed
  std::int32_t owner_cost;  // T_h for a row of size 1, 0 without an owner
  std::uint32_t owner;      // h, or kNobody
  std::uint32_t reuse;      // class, this iteration's training counted
  std::int32_t size;
  WorkerMask next;  // N, 0 if not planned

  static constexpr std::uint32_t kNobody = 64;
};

// What it adds, for a row of size 1, to the costs of its next training by `next` that `worker` alone trains it now.
template <unsigned Width>
std::int32_t next_cost(WorkerMask next, const JointLinks<Width>& links, unsigned worker) {
  if (next == 0) return 0;
  const std::int32_t push = next == worker_bit(worker) ? 0 : links.pull[worker];
  return push - (next >> worker & 1 ? links.pull[worker] : 0);
}

// What is added, for a row of size 1, whichever worker outside M joins: a newcomer makes the owner push, or the first
// trainer's row split.
template <unsigned Width>
std::int32_t common_cost(const SharedRow& row, const JointLinks<Width>& links, WorkerMask trainers) {
  if (trainers == 0) return row.owner_cost;
  if (trainers & (trainers - 1)) return 0;
  const auto alone = static_cast<std::uint32_t>(__builtin_ctzll(trainers));
  const std::int32_t push = alone == row.owner ? row.owner_cost : 0;
  return links.again[row.reuse][alone] + push - next_cost(row.next, links, alone);
}

// What it adds to the row's cost that `worker` joins `trainers`.
template <unsigned Width>
std::int32_t added_cost(const SharedRow& row, const JointLinks<Width>& links, WorkerMask trainers, unsigned worker) {
  if (trainers >> worker & 1) return 0;
  if (trainers == 0 && worker == row.owner) return row.size * next_cost(row.next, links, worker);
  const std::int32_t pull = row.latest >> worker & 1 ? 0 : links.pull[worker];
  const std::int32_t later = trainers ? links.again[row.reuse][worker] : next_cost(row.next, links, worker);
  return row.size * (pull + later + common_cost(row, links, trainers));
}

// costs[j] += T_j for every worker that lacks the latest, + `common`.
template <unsigned Width>
[[gnu::always_inline]] inline void add_pulls(WorkerMask latest, const JointLinks<Width>& links, std::int32_t common,
                                             std::int32_t* costs) {
  for (unsigned first = 0; first < Width; first += 32) {
    const auto lacks = static_cast<std::uint32_t>(~latest >> first);
    for (unsigned j = 0; j < 32 && first + j < Width; ++j) {
      costs[first + j] += (-static_cast<std::int32_t>(lacks >> j & 1) & links.pull[first + j]) + common;
    }
  }
}

// costs[j] += `next_cost` of every worker.
template <unsigned Width>
[[gnu::always_inline]] inline void add_next(WorkerMask next, const JointLinks<Width>& links, std::int32_t* costs) {
  if (next == 0) return;
  for (unsigned j = 0; j < Width; ++j) costs[j] += links.pull[j];
  const int saved = next & (next - 1) ? 1 : 2;
  for (WorkerMask rest = next; rest; rest &= rest - 1) {
    const int j = __builtin_ctzll(rest);
    costs[j] -= saved * links.pull[j];
  }
}

// `added_cost` of every worker.
template <unsigned Width>
[[gnu::always_inline]] inline void added_costs(const SharedRow& row, const JointLinks<Width>& links,
                                               std::int32_t* costs) {
  const std::int32_t* again = row.trainers ? links.again[row.reuse] : links.nothing;
  for (unsigned j = 0; j < Width; ++j) costs[j] = again[j];
  add_pulls(row.latest, links, common_cost(row, links, row.trainers), costs);
  if (row.trainers == 0) {
    if (row.owner != SharedRow::kNobody) costs[row.owner] = 0;
    add_next(row.next, links, costs);
  }
  for (WorkerMask rest = row.trainers; rest; rest &= rest - 1) costs[__builtin_ctzll(rest)] = 0;
  if (row.size == 1) return;
  for (unsigned j = 0; j < Width; ++j) costs[j] *= row.size;
}

}  // namespace esd
