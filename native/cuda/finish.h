// The canonical answer (solver/canonical.h) by a team: least optimal prices, the flow under them, its proof.
#pragma once

#include "cuda/ascent.h"

namespace esd {

// board->exchange[h][j] = least cost + price at j, beyond the row's least, over the rows that may be at h.
//
// A row may be at its star, if there are stars, or at any worker with rows of its group: all of these bound the optimal
// prices, which are the same for every optimal assignment.
template <class Team, class T, class Mask>
ESD_HD void find_exchanges(Team& team, const Task<T, Mask>& task, bool starred) {
  Board<T, Mask>& board = *task.board;
  const int n = task.workers;
  team.each(n * n, [&](int e) { board.exchange[e] = kMost<T>; });
  team.each(task.rows, [&](int i) {
    const Mask users = starred ? only<Mask>(task.worker_of[i]) : task.users[group_of(task, i)];
    const int any = lowest_worker(users);
    const T low = task.cost(i, any) + board.prices[any];
    for (int j = 0; j < n; ++j) {
      const T beyond = task.cost(i, j) + board.prices[j] - low;
      for_workers(users, [&](int h) { lower(&board.exchange[h * n + j], beyond); });
    }
  });
}

// Least optimal prices with 0 at the first worker: negated shortest distances from it over the exchanges.
template <class Block, class T, class Mask>
ESD_HD void canonical_prices(Block& block, const Task<T, Mask>& task) {
  Board<T, Mask>& board = *task.board;
  const int n = task.workers, first = lowest_worker(task.active);
  block.each(n, [&](int j) { board.distances[j] = j == first ? T{0} : board.exchange[first * n + j]; });
  for (bool changed = true; changed;) {
    block.one([&] { board.changed = 0; });
    block.each(n * n, [&](int e) {
      const int from = e / n, to = e % n;
      if ((task.active & only<Mask>(from)) == 0) return;
      const std::int64_t length = std::int64_t{peek(&board.distances[from])} + board.exchange[e];
      if (length >= peek(&board.distances[to])) return;
      lower(&board.distances[to], static_cast<T>(length));
      raise(&board.changed, 1);
    });
    changed = block.agree([&] { return board.changed != 0; });
  }
  // For a worker without capacity this is the least price at which no row wants it.
  const T base = block.agree([&] { return board.prices[first]; });
  block.each(n, [&](int j) { board.prices[j] -= base + board.distances[j]; });
}

// Rows of a group go to its workers in ascending order of both.
template <class Team, class T, class Mask>
ESD_HD void hand_out(Team& team, const Task<T, Mask>& task) {
  Board<T, Mask>& board = *task.board;
  team.each(task.rows, [&](int i) { task.worker_of[i] = lowest_worker(task.users[group_of(task, i)]); });
  team.lead([&](auto& block) {
    const int splits = scan(
        block, board.sums, board.groups, [&](int g) { return is_single(task.users[g]) ? 0 : 1; },
        [&](int g, int before, int here) {
          if (here != 0) task.splits[before] = g;
        });
    for (int s = 0; s < splits; ++s) {
      const int group = task.splits[s];
      scan(
          block, board.sums, task.rows, [&](int i) { return group_of(task, i) == group ? 1 : 0; },
          [&](int i, int rank, int here) {
            if (here == 0) return;
            Mask rest = task.users[group];
            for (; rank >= task.at(group, lowest_worker(rest)); rest &= rest - 1)
              rank -= task.at(group, lowest_worker(rest));
            task.worker_of[i] = lowest_worker(rest);
          });
    }
  });
}

// Primal minus dual objective under the board's prices to board->gap; a worker not at its capacity is no solution.
template <class Team, class T, class Mask>
ESD_HD void prove(Team& team, const Task<T, Mask>& task) {
  Board<T, Mask>& board = *task.board;
  team.one([&] { board.gap = 0; });
  team.each(task.rows, [&](int i) {
    const int j = task.worker_of[i];
    const std::int64_t beyond = std::int64_t{task.cost(i, j)} + board.prices[j] - task.low[i];
    if (beyond != 0) add(&board.gap, beyond);
  });
  team.one([&] {
    for_workers(task.active, [&](int j) {
      if (board.load[j] != board.capacities[j]) board.gap = kMost<std::int64_t>;
    });
  });
}

// From optimal prices and, in worker_of or as a flow, an optimal assignment.
template <class Team, class T, class Mask>
ESD_HD void finish(Team& team, const Task<T, Mask>& task, bool starred) {
  find_exchanges(team, task, starred);
  team.lead([&](auto& block) { canonical_prices(block, task); });
  flow_under_prices(team, task, true);
  hand_out(team, task);
  prove(team, task);
}

}  // namespace esd
