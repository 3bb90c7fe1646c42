// The Hungarian algorithm of the paper (Chinese edition §3.4) on k x n.
//
// The paper copies column j m_j times. All copies of a worker have the same dual whenever the matrix is adjusted: a
// starred copy with a lower one would give its row a negative entry at another copy. So the k x k matrix is
// c_ij - u_i - v_j with one v_j per worker, and the column cover is one bit per worker: "has an uncovered copy".
#pragma once

#include "cuda/atomics.h"
#include "cuda/task.h"

namespace esd {

constexpr int kNone = -1;

template <class T, class Mask>
ESD_HD Mask zeros(const Task<T, Mask>& task, int i, Mask among) {
  const T* v = task.board->prices;
  const T u = task.duals[i];
  return workers_where(among, [&](int j) { return task.cost(i, j) - u - v[j] == 0; });
}

// Initial reduction: every row, then every column, minus its least entry.
template <class Team, class T, class Mask>
ESD_HD void reduce(Team& team, const Task<T, Mask>& task) {
  T* v = task.board->prices;
  team.each(task.workers, [&](int j) { v[j] = kMost<T>; });
  team.each(task.rows, [&](int i) {
    T least = kMost<T>;
    for_workers(task.active, [&](int j) { least = task.cost(i, j) < least ? task.cost(i, j) : least; });
    task.duals[i] = least;
    for_workers(task.active, [&](int j) { lower(&v[j], static_cast<T>(task.cost(i, j) - least)); });
  });
  team.each(task.workers, [&](int j) {
    if ((task.active & only<Mask>(j)) == 0) v[j] = 0;
  });
}

// Initial matching: each row stars a zero in a column that is still free. `load` counts the free copies.
template <class Team, class T, class Mask>
ESD_HD void match(Team& team, const Task<T, Mask>& task) {
  Board<T, Mask>& board = *task.board;
  team.each(task.workers, [&](int j) { board.load[j] = board.capacities[j]; });
  team.each(task.rows, [&](int i) {
    task.worker_of[i] = kNone;
    for (Mask rest = zeros(task, i, task.active); rest != 0; rest &= rest - 1) {
      const int j = lowest_worker(rest);
      if (peek(&board.load[j]) <= 0) continue;
      if (add(&board.load[j], -1) > 0) {
        task.worker_of[i] = j;
        return;
      }
      add(&board.load[j], 1);
    }
  });
}

// Covers the columns of all stars; the others are returned.
template <class Team, class T, class Mask>
ESD_HD Mask cover_stars(Team& team, const Task<T, Mask>& task) {
  Board<T, Mask>& board = *task.board;
  team.each(task.rows, [&](int i) {
    task.covered[i] = 0;
    task.prime[i] = kNone;
  });
  team.each(task.workers, [&](int j) { board.exits[j] = board.taken[j] = 0; });
  return team.agree([&] { return workers_where(task.active, [&](int j) { return board.load[j] > 0; }); });
}

// Primes the uncovered zeros of the columns of `open`. A row that has a star is covered and its star's column opened;
// it can leave that column for its prime's, which was opened in an earlier sweep. Returns the columns opened.
template <class Team, class T, class Mask>
ESD_HD Mask sweep(Team& team, const Task<T, Mask>& task, Mask open) {
  Board<T, Mask>& board = *task.board;
  team.one([&] { board.found = 0; });
  team.each(task.rows, [&](int i) {
    if (task.covered[i] != 0) return;
    const Mask uncovered = zeros(task, i, open);
    if (uncovered == 0) return;
    task.prime[i] = lowest_worker(uncovered);
    const int star = task.worker_of[i];
    if (star == kNone) {
      raise(&board.changed, 1);
      return;
    }
    task.covered[i] = 1;
    if ((open & only<Mask>(star)) != 0) return;
    include(&board.found, only<Mask>(star));
    task.exit_rows[board.starts[star] + add(&board.exits[star], 1)] = i;
  });
  return team.agree([&] { return board.found; });
}

// Creates zeros: the least uncovered entry is added to the duals of uncovered columns, taken from those of covered rows.
template <class Team, class T, class Mask>
ESD_HD void adjust(Team& team, const Task<T, Mask>& task, Mask open) {
  Board<T, Mask>& board = *task.board;
  team.one([&] { board.step = kMost<T>; });
  team.each(task.rows, [&](int i) {
    if (task.covered[i] != 0) return;
    for_workers(open,
                [&](int j) { lower(&board.step, static_cast<T>(task.cost(i, j) - task.duals[i] - board.prices[j])); });
  });
  const T step = team.agree([&] { return board.step; });
  team.each(task.rows, [&](int i) {
    if (task.covered[i] != 0) task.duals[i] -= step;
  });
  team.each(task.workers, [&](int j) {
    if ((open & only<Mask>(j)) != 0) board.prices[j] += step;
  });
}

// Follows one alternating path, from an unstarred primed row to a free column, and takes its places. Rows at one
// column are interchangeable: the path takes the next one that can leave. Columns come in the order they were opened,
// backwards, so a path ends; the first to reach each column goes on, so some path reaches a free one.
template <class T, class Mask>
ESD_HD bool find_path(const Task<T, Mask>& task, Mask free, int start) {
  Board<T, Mask>& board = *task.board;
  int row = start;
  while ((free & only<Mask>(task.prime[row])) == 0) {
    const int column = task.prime[row];
    const int place = add(&board.taken[column], 1);
    if (place >= board.exits[column]) return false;
    const int displaced = task.exit_rows[board.starts[column] + place];
    task.next[row] = displaced;
    row = displaced;
  }
  task.next[row] = kNone;
  return add(&board.load[task.prime[row]], -1) > 0;
}

// Augments along all disjoint paths that are found at once.
template <class Team, class T, class Mask>
ESD_HD void augment(Team& team, const Task<T, Mask>& task, Mask free) {
  Board<T, Mask>& board = *task.board;
  team.each(task.rows, [&](int i) {
    if (task.prime[i] == kNone || task.covered[i] != 0 || !find_path(task, free, i)) return;
    for (int row = i; row != kNone; row = task.next[row]) task.worker_of[row] = task.prime[row];
  });
  team.each(task.workers, [&](int j) {
    if (board.load[j] < 0) board.load[j] = 0;  // paths that came too late
  });
}

// Stars an optimal assignment in worker_of and leaves optimal prices on the board. Counts what it does.
template <class Team, class T, class Mask>
ESD_HD void hungarian(Team& team, const Task<T, Mask>& task, int& phases, int& adjustments) {
  Board<T, Mask>& board = *task.board;
  reduce(team, task);
  match(team, task);
  for (Mask free = cover_stars(team, task); free != 0; free = cover_stars(team, task)) {
    ++phases;
    team.one([&] { board.changed = 0; });
    for (Mask open = free;;) {
      const Mask opened = sweep(team, task, open);
      if (team.agree([&] { return board.changed != 0; })) break;
      open |= opened;
      if (opened != 0) continue;
      adjust(team, task, open);
      ++adjustments;
    }
    augment(team, task, free);
  }
  team.each(task.workers, [&](int j) { board.prices[j] = -board.prices[j]; });
}

}  // namespace esd
