// The canonical answer by a team of threads: the least optimal prices (see solver/canonical_prices.h), the assignment
// by the flow under them, and its proof.
#pragma once

#include "common/host_device.h"
#include "cuda/atomics.h"
#include "cuda/dual_ascent.h"
#include "cuda/row_groups.h"
#include "cuda/scan.h"
#include "cuda/workspace.h"

namespace esd {

// Writes board->exchange[h][j]: the least difference, over the rows that may be at h, of cost + price at j and the
// row's least cost + price.
//
// A row may be at its star, if there are stars, or at any worker with rows of its group. All of these bound the optimal
// prices, since every optimal assignment has the same ones.
template <typename Team, typename T, typename Set>
ESD_HD void find_exchanges(Team& team, const Workspace<T, Set>& work, bool starred) {
  Board<T, Set>& board = *work.board;
  const int n = work.workers;
  team.each(n * n, [&](int e) { board.exchange[e] = kLargest<T>; });
  team.each(work.rows, [&](int i) {
    const Set users = starred ? Set::only(work.worker_of[i]) : work.users[group_of(work, i)];
    const int any = users.first();
    const T low = work.cost(i, any) + board.prices[any];
    for (int j = 0; j < n; ++j) {
      const T beyond = work.cost(i, j) + board.prices[j] - low;
      users.for_each([&](int h) { atomic_min(&board.exchange[h * n + j], beyond); });
    }
  });
}

// Replaces the board's optimal prices by the least ones, with 0 at the first worker: the negated shortest distances
// from it over the exchanges.
template <typename Block, typename T, typename Set>
ESD_HD void canonical_prices(Block& block, const Workspace<T, Set>& work) {
  Board<T, Set>& board = *work.board;
  const int n = work.workers, first = work.active.first();
  block.each(n, [&](int j) { board.distances[j] = j == first ? T{0} : board.exchange[first * n + j]; });
  for (bool changed = true; changed;) {
    block.one([&] { board.changed = 0; });
    block.each(n * n, [&](int e) {
      const int from = e / n, to = e % n;
      if (!work.active.contains(from)) return;
      const std::int64_t length = std::int64_t{atomic_load(&board.distances[from])} + board.exchange[e];
      if (length >= atomic_load(&board.distances[to])) return;
      atomic_min(&board.distances[to], static_cast<T>(length));
      atomic_max(&board.changed, 1);
    });
    changed = block.agree([&] { return board.changed != 0; });
  }
  // For a worker without capacity this is the least price at which no row wants it.
  const T base = block.agree([&] { return board.prices[first]; });
  block.each(n, [&](int j) { board.prices[j] -= base + board.distances[j]; });
}

// Hands the rows of each group to its workers, in ascending order of both.
template <typename Team, typename T, typename Set>
ESD_HD void assign_rows(Team& team, const Workspace<T, Set>& work) {
  Board<T, Set>& board = *work.board;
  team.each(work.rows, [&](int i) { work.worker_of[i] = work.users[group_of(work, i)].first(); });
  team.lead([&](auto& block) {
    const int shared = scan(
        block, board.sums, board.groups, [&](int g) { return work.users[g].several() ? 1 : 0; },
        [&](int g, int before, int here) {
          if (here != 0) work.shared_groups[before] = g;
        });
    for (int s = 0; s < shared; ++s) {
      const int group = work.shared_groups[s];
      scan(
          block, board.sums, work.rows, [&](int i) { return group_of(work, i) == group ? 1 : 0; },
          [&](int i, int rank, int here) {
            if (here == 0) return;
            Set rest = work.users[group];
            for (; rank >= work.at(group, rest.first()); rest = rest.without_first())
              rank -= work.at(group, rest.first());
            work.worker_of[i] = rest.first();
          });
    }
  });
}

// Writes cost minus dual bound under the board's prices to board->gap. An assignment in which a worker is not at its
// capacity is not a solution.
template <typename Team, typename T, typename Set>
ESD_HD void prove(Team& team, const Workspace<T, Set>& work) {
  Board<T, Set>& board = *work.board;
  team.one([&] { board.gap = 0; });
  team.each(work.rows, [&](int i) {
    const int j = work.worker_of[i];
    const std::int64_t beyond = std::int64_t{work.cost(i, j)} + board.prices[j] - work.low[i];
    if (beyond != 0) atomic_add(&board.gap, beyond);
  });
  team.one([&] {
    work.active.for_each([&](int j) {
      if (board.load[j] != board.capacities[j]) board.gap = kLargest<std::int64_t>;
    });
  });
}

// Makes the canonical answer from optimal prices and an optimal assignment, which is given by stars in work.worker_of
// or by the flow of the groups.
template <typename Team, typename T, typename Set>
ESD_HD void make_canonical(Team& team, const Workspace<T, Set>& work, bool starred) {
  find_exchanges(team, work, starred);
  team.lead([&](auto& block) { canonical_prices(block, work); });
  flow_under_prices(team, work, true);
  assign_rows(team, work);
  prove(team, work);
}

}  // namespace esd
