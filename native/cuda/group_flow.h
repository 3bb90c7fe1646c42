// The flow of solver/group_flow.h by one block of threads: the same flow, with a running sum over the groups instead of
// each loop.
#pragma once

#include "common/host_device.h"
#include "cuda/atomics.h"
#include "cuda/scan.h"
#include "cuda/workspace.h"

namespace esd {

// The share of one group in `room` places if groups are served in order and earlier groups want `before`.
ESD_HD int share_of(int room, int before, int wanted) {
  const int rest = room - before;
  return rest <= 0 ? 0 : rest < wanted ? rest : wanted;
}

// Places every row: first the groups with one tight worker, then the others where there is room, and last the rest at
// their last tight worker.
template <typename Block, typename T, typename Set>
ESD_HD void spread_groups(Block& block, const Workspace<T, Set>& work) {
  Board<T, Set>& board = *work.board;
  const int groups = board.groups;
  block.each(groups * work.workers, [&](int e) { work.placed[e] = 0; });
  block.each(work.workers, [&](int j) { board.load[j] = 0; });
  block.each(groups, [&](int g) {
    const bool several = work.group_tight[g].several();
    work.users[g] = work.group_tight[g].when(!several);
    work.left[g] = several ? work.sizes[g] : 0;
    if (several) return;
    const int worker = work.group_tight[g].first();
    work.at(g, worker) = work.sizes[g];
    atomic_add(&board.load[worker], work.sizes[g]);
  });
  const auto give = [&](int g, int worker, int amount) {
    if (amount == 0) return;
    work.at(g, worker) += amount;
    work.users[g].add(worker);
    work.left[g] -= amount;
  };
  work.active.for_each([&](int j) {
    const int room = block.agree([&] { return board.capacities[j] - board.load[j]; });
    if (room <= 0) return;
    const int wanted = scan(
        block, board.sums, groups, [&](int g) { return work.group_tight[g].contains(j) ? work.left[g] : 0; },
        [&](int g, int before, int here) { give(g, j, share_of(room, before, here)); });
    block.one([&] { board.load[j] += wanted < room ? wanted : room; });
  });
  block.each(groups, [&](int g) {
    if (work.left[g] == 0) return;
    const int worker = work.group_tight[g].last();
    atomic_add(&board.load[worker], work.left[g]);
    give(g, worker, work.left[g]);
  });
}

// The union of the sets `value(g)` over all groups.
template <typename Block, typename T, typename Set, typename Value>
ESD_HD Set union_over_groups(Block& block, const Workspace<T, Set>& work, Value value) {
  block.one([&] { work.board->found_workers = Set{}; });
  block.each(work.board->groups, [&](int g) { atomic_include(&work.board->found_workers, value(g)); });
  return block.agree([&] { return work.board->found_workers; });
}

template <typename Block, typename T, typename Set>
ESD_HD Set overloaded_workers(Block& block, const Workspace<T, Set>& work) {
  const Board<T, Set>& board = *work.board;
  return block.agree(
      [&] { return workers_where(work.active, [&](int j) { return board.load[j] > board.capacities[j]; }); });
}

// Moves worker j's surplus to worker `to`: as many rows as can move, or as `to` has room for.
template <typename Block, typename T, typename Set>
ESD_HD void move_surplus(Block& block, const Workspace<T, Set>& work, int j, int to, bool within_room) {
  Board<T, Set>& board = *work.board;
  const int limit = block.agree([&] {
    const int surplus = board.load[j] - board.capacities[j], room = board.capacities[to] - board.load[to];
    return within_room && room < surplus ? room : surplus;
  });
  if (limit <= 0) return;
  const int movable = scan(
      block, board.sums, board.groups,
      [&](int g) { return work.users[g].contains(j) && work.group_tight[g].contains(to) ? work.at(g, j) : 0; },
      [&](int g, int before, int here) {
        const int amount = share_of(limit, before, here);
        if (amount == 0) return;
        work.at(g, j) -= amount;
        if (work.at(g, j) == 0) work.users[g].remove(j);
        work.at(g, to) += amount;
        work.users[g].add(to);
      });
  block.one([&] {
    const int moved = movable < limit ? movable : limit;
    board.load[j] -= moved;
    board.load[to] += moved;
  });
}

// Moves surplus down the labels in one phase. Returns false when no surplus can reach a worker with room.
template <typename Block, typename T, typename Set>
ESD_HD bool relieve_groups(Block& block, const Workspace<T, Set>& work) {
  Board<T, Set>& board = *work.board;
  const Set surplus = overloaded_workers(block, work);
  if (surplus.empty()) return false;
  Set level = block.agree(
      [&] { return workers_where(work.active, [&](int j) { return board.load[j] < board.capacities[j]; }); });
  Set labelled = level;
  int last = 0;
  block.one([&] { board.levels[0] = level; });
  while (!level.empty()) {
    const Set reached = union_over_groups(
        block, work, [&](int g) { return work.users[g].when(!(work.group_tight[g] & level).empty()); });
    level = reached - labelled;
    labelled |= level;
    ++last;
    block.one([&] { board.levels[last] = level; });
  }
  if ((surplus & labelled).empty()) return false;
  for (int above = last - 1; above > 0; --above) {
    const Set targets = board.levels[above - 1];
    board.levels[above].for_each(
        [&](int j) { targets.for_each([&](int to) { move_surplus(block, work, j, to, above == 1); }); });
  }
  return true;
}

// Finds a maximum flow.
template <typename Block, typename T, typename Set>
ESD_HD void flow_groups(Block& block, const Workspace<T, Set>& work) {
  spread_groups(block, work);
  while (relieve_groups(block, work)) {
  }
}

// The workers that surplus rows could reach; empty when the flow places every row within capacity.
template <typename Block, typename T, typename Set>
ESD_HD Set violated_workers(Block& block, const Workspace<T, Set>& work) {
  Set set = overloaded_workers(block, work);
  for (Set before{}; before != set;) {
    before = set;
    set |= union_over_groups(block, work,
                             [&](int g) { return work.group_tight[g].when(!(work.users[g] & before).empty()); });
  }
  return set;
}

}  // namespace esd
