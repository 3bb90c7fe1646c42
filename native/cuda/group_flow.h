// solver/flow.h by a block: the same flow, each step a running sum over the groups instead of a loop.
#pragma once

#include "cuda/row_groups.h"

namespace esd {

// At most `room` in all, in the order of the groups.
ESD_HD int share_of(int room, int before, int wanted) {
  const int rest = room - before;
  return rest <= 0 ? 0 : rest < wanted ? rest : wanted;
}

template <class Block, class T, class Mask>
ESD_HD void spread_groups(Block& block, const Task<T, Mask>& task) {
  Board<T, Mask>& board = *task.board;
  const int groups = board.groups;
  block.each(groups * task.workers, [&](int e) { task.placed[e] = 0; });
  block.each(task.workers, [&](int j) { board.load[j] = 0; });
  block.each(groups, [&](int g) {
    const bool single = is_single(task.masks[g]);
    task.users[g] = single ? task.masks[g] : Mask{0};
    task.left[g] = single ? 0 : task.sizes[g];
    if (!single) return;
    const int worker = lowest_worker(task.masks[g]);
    task.at(g, worker) = task.sizes[g];
    add(&board.load[worker], task.sizes[g]);
  });
  const auto give = [&](int g, int worker, int amount) {
    if (amount == 0) return;
    task.at(g, worker) += amount;
    task.users[g] |= only<Mask>(worker);
    task.left[g] -= amount;
  };
  for_workers(task.active, [&](int j) {
    const int room = block.agree([&] { return board.capacities[j] - board.load[j]; });
    if (room <= 0) return;
    const int wanted = scan(
        block, board.sums, groups, [&](int g) { return (task.masks[g] & only<Mask>(j)) != 0 ? task.left[g] : 0; },
        [&](int g, int before, int here) { give(g, j, share_of(room, before, here)); });
    block.one([&] { board.load[j] += wanted < room ? wanted : room; });
  });
  block.each(groups, [&](int g) {
    if (task.left[g] == 0) return;
    const int worker = highest_worker(task.masks[g]);
    add(&board.load[worker], task.left[g]);
    give(g, worker, task.left[g]);
  });
}

// The union of `value(g)` over all groups.
template <class Block, class T, class Mask, class Value>
ESD_HD Mask unite(Block& block, const Task<T, Mask>& task, Value value) {
  block.one([&] { task.board->found = 0; });
  block.each(task.board->groups, [&](int g) { include(&task.board->found, value(g)); });
  return block.agree([&] { return task.board->found; });
}

template <class Block, class T, class Mask>
ESD_HD Mask overloaded_workers(Block& block, const Task<T, Mask>& task) {
  const Board<T, Mask>& board = *task.board;
  return block.agree(
      [&] { return workers_where(task.active, [&](int j) { return board.load[j] > board.capacities[j]; }); });
}

// Moves worker j's surplus to worker `to`, as much as there is room where that counts.
template <class Block, class T, class Mask>
ESD_HD void move_surplus(Block& block, const Task<T, Mask>& task, int j, int to, bool to_has_room) {
  Board<T, Mask>& board = *task.board;
  const int limit = block.agree([&] {
    const int surplus = board.load[j] - board.capacities[j], room = board.capacities[to] - board.load[to];
    return to_has_room && room < surplus ? room : surplus;
  });
  if (limit <= 0) return;
  const int movable = scan(
      block, board.sums, board.groups,
      [&](int g) {
        return (task.users[g] & only<Mask>(j)) != 0 && (task.masks[g] & only<Mask>(to)) != 0 ? task.at(g, j) : 0;
      },
      [&](int g, int before, int here) {
        const int amount = share_of(limit, before, here);
        if (amount == 0) return;
        task.at(g, j) -= amount;
        if (task.at(g, j) == 0) task.users[g] &= static_cast<Mask>(~only<Mask>(j));
        task.at(g, to) += amount;
        task.users[g] |= only<Mask>(to);
      });
  block.one([&] {
    const int moved = movable < limit ? movable : limit;
    board.load[j] -= moved;
    board.load[to] += moved;
  });
}

// One phase. False: no surplus can reach a worker with room.
template <class Block, class T, class Mask>
ESD_HD bool relieve_groups(Block& block, const Task<T, Mask>& task) {
  Board<T, Mask>& board = *task.board;
  const Mask surplus = overloaded_workers(block, task);
  if (surplus == 0) return false;
  Mask level = block.agree(
      [&] { return workers_where(task.active, [&](int j) { return board.load[j] < board.capacities[j]; }); });
  Mask labelled = level;
  int last = 0;
  block.one([&] { board.levels[0] = level; });
  while (level != 0) {
    const Mask reached =
        unite(block, task, [&](int g) { return (task.masks[g] & level) != 0 ? task.users[g] : Mask{0}; });
    level = reached & static_cast<Mask>(~labelled);
    labelled |= level;
    ++last;
    block.one([&] { board.levels[last] = level; });
  }
  if ((surplus & labelled) == 0) return false;
  for (int above = last - 1; above > 0; --above) {
    const Mask targets = board.levels[above - 1];
    for_workers(board.levels[above],
                [&](int j) { for_workers(targets, [&](int to) { move_surplus(block, task, j, to, above == 1); }); });
  }
  return true;
}

template <class Block, class T, class Mask>
ESD_HD void flow_groups(Block& block, const Task<T, Mask>& task) {
  spread_groups(block, task);
  while (relieve_groups(block, task)) {
  }
}

// The workers that surplus rows could reach: empty when the flow places every row within capacity.
template <class Block, class T, class Mask>
ESD_HD Mask violated_workers(Block& block, const Task<T, Mask>& task) {
  Mask set = overloaded_workers(block, task);
  for (Mask before = 0; before != set;) {
    before = set;
    set |= unite(block, task, [&](int g) { return (task.users[g] & before) != 0 ? task.masks[g] : Mask{0}; });
  }
  return set;
}

}  // namespace esd
