// The Hungarian algorithm of the paper (Chinese edition §3.4) on k x n costs, by a team of threads.
//
// The paper copies column j m_j times. All copies of a worker have the same dual whenever the matrix is adjusted: a
// starred copy with a lower one would give its row a negative entry at another copy. So the k x k matrix is
// c_ij - u_i - v_j with one v_j per worker, and the column cover is one bit per worker: "has an uncovered copy".
#pragma once

#include "common/host_device.h"
#include "cuda/atomics.h"
#include "cuda/workspace.h"

namespace esd {

constexpr int kNobody = -1;  // a row without star or prime, the end of a path

// The columns of `among` in which row i has a zero.
template <typename T, typename Set>
ESD_HD Set zeros(const Workspace<T, Set>& work, int i, Set among) {
  const T* v = work.board->prices;
  const T u = work.duals[i];
  return workers_where(among, [&](int j) { return work.cost(i, j) - u - v[j] == 0; });
}

// Makes the initial reduction: every row, then every column, minus its least entry.
template <typename Team, typename T, typename Set>
ESD_HD void reduce(Team& team, const Workspace<T, Set>& work) {
  T* v = work.board->prices;
  team.each(work.workers, [&](int j) { v[j] = kLargest<T>; });
  team.each(work.rows, [&](int i) {
    T least = kLargest<T>;
    work.active.for_each([&](int j) { least = work.cost(i, j) < least ? work.cost(i, j) : least; });
    work.duals[i] = least;
    work.active.for_each([&](int j) { atomic_min(&v[j], static_cast<T>(work.cost(i, j) - least)); });
  });
  team.each(work.workers, [&](int j) {
    if (!work.active.contains(j)) v[j] = 0;
  });
}

// Makes the initial matching: each row stars a zero in a column that is still free. board.load counts the free copies
// of each column, here and until the end.
template <typename Team, typename T, typename Set>
ESD_HD void match(Team& team, const Workspace<T, Set>& work) {
  Board<T, Set>& board = *work.board;
  team.each(work.workers, [&](int j) { board.load[j] = board.capacities[j]; });
  team.each(work.rows, [&](int i) {
    work.worker_of[i] = kNobody;
    for (Set rest = zeros(work, i, work.active); !rest.empty(); rest = rest.without_first()) {
      const int j = rest.first();
      if (atomic_load(&board.load[j]) <= 0) continue;
      if (atomic_add(&board.load[j], -1) > 0) {
        work.worker_of[i] = j;
        return;
      }
      atomic_add(&board.load[j], 1);
    }
  });
}

// Covers the columns of all stars, and no row. Returns the other columns, those with a free copy.
template <typename Team, typename T, typename Set>
ESD_HD Set cover_stars(Team& team, const Workspace<T, Set>& work) {
  Board<T, Set>& board = *work.board;
  team.each(work.rows, [&](int i) {
    work.covered[i] = 0;
    work.prime[i] = kNobody;
  });
  team.each(work.workers, [&](int j) { board.exits[j] = board.taken[j] = 0; });
  return team.agree([&] { return workers_where(work.active, [&](int j) { return board.load[j] > 0; }); });
}

// Primes the uncovered zeros of the columns of `open`. A row that has a star is covered and its star's column opened;
// it can then move from that column to its prime's, which was opened in an earlier sweep. Returns the columns opened.
template <typename Team, typename T, typename Set>
ESD_HD Set sweep(Team& team, const Workspace<T, Set>& work, Set open) {
  Board<T, Set>& board = *work.board;
  team.one([&] { board.found_workers = Set{}; });
  team.each(work.rows, [&](int i) {
    if (work.covered[i] != 0) return;
    const Set uncovered = zeros(work, i, open);
    if (uncovered.empty()) return;
    work.prime[i] = uncovered.first();
    const int star = work.worker_of[i];
    if (star == kNobody) {
      atomic_max(&board.changed, 1);
      return;
    }
    work.covered[i] = 1;
    if (open.contains(star)) return;
    atomic_include(&board.found_workers, Set::only(star));
    work.exit_rows[board.starts[star] + atomic_add(&board.exits[star], 1)] = i;
  });
  return team.agree([&] { return board.found_workers; });
}

// Creates zeros: adds the least uncovered entry to the duals of uncovered columns and subtracts it from the duals of
// covered rows.
template <typename Team, typename T, typename Set>
ESD_HD void adjust(Team& team, const Workspace<T, Set>& work, Set open) {
  Board<T, Set>& board = *work.board;
  team.one([&] { board.step = kLargest<T>; });
  team.each(work.rows, [&](int i) {
    if (work.covered[i] != 0) return;
    open.for_each(
        [&](int j) { atomic_min(&board.step, static_cast<T>(work.cost(i, j) - work.duals[i] - board.prices[j])); });
  });
  const T step = team.agree([&] { return board.step; });
  team.each(work.rows, [&](int i) {
    if (work.covered[i] != 0) work.duals[i] -= step;
  });
  team.each(work.workers, [&](int j) {
    if (open.contains(j)) board.prices[j] += step;
  });
}

// Follows one alternating path, from an unstarred primed row to a free column, and takes its places. Returns whether it
// reached a free column. Rows at one column are interchangeable: the path takes the next one that can leave. A path
// visits columns in the reverse order of their opening, so it ends. The first path to reach a column continues, so at
// least one path reaches a free column.
template <typename T, typename Set>
ESD_HD bool find_path(const Workspace<T, Set>& work, Set free, int start) {
  Board<T, Set>& board = *work.board;
  int row = start;
  while (!free.contains(work.prime[row])) {
    const int column = work.prime[row];
    const int rank = atomic_add(&board.taken[column], 1);
    if (rank >= board.exits[column]) return false;
    const int displaced = work.exit_rows[board.starts[column] + rank];
    work.next[row] = displaced;
    row = displaced;
  }
  work.next[row] = kNobody;
  return atomic_add(&board.load[work.prime[row]], -1) > 0;
}

// Augments along all disjoint paths that are found at once.
template <typename Team, typename T, typename Set>
ESD_HD void augment(Team& team, const Workspace<T, Set>& work, Set free) {
  Board<T, Set>& board = *work.board;
  team.each(work.rows, [&](int i) {
    if (work.prime[i] == kNobody || work.covered[i] != 0 || !find_path(work, free, i)) return;
    for (int row = i; row != kNobody; row = work.next[row]) work.worker_of[row] = work.prime[row];
  });
  team.each(work.workers, [&](int j) {
    if (board.load[j] < 0) board.load[j] = 0;  // paths that came too late have decremented it, too
  });
}

// Stars an optimal assignment in work.worker_of and leaves optimal prices on the board. Counts phases and adjustments.
template <typename Team, typename T, typename Set>
ESD_HD void hungarian(Team& team, const Workspace<T, Set>& work, int& phases, int& adjustments) {
  Board<T, Set>& board = *work.board;
  reduce(team, work);
  match(team, work);
  for (Set free = cover_stars(team, work); !free.empty(); free = cover_stars(team, work)) {
    ++phases;
    team.one([&] { board.changed = 0; });
    for (Set open = free;;) {
      const Set opened = sweep(team, work, open);
      if (team.agree([&] { return board.changed != 0; })) break;
      open |= opened;
      if (!opened.empty()) continue;
      adjust(team, work, open);
      ++adjustments;
    }
    augment(team, work, free);
  }
  team.each(work.workers, [&](int j) { board.prices[j] = -board.prices[j]; });
}

}  // namespace esd
