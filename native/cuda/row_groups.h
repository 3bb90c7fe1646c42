// The rows under prices: tight workers, and the groups of rows that have the same ones.
#pragma once

#include "cuda/atomics.h"
#include "cuda/task.h"

namespace esd {

template <class Team, class T, class Mask>
ESD_HD void find_tight(Team& team, const Task<T, Mask>& task) {
  const T* prices = task.board->prices;
  team.each(task.rows, [&](int i) {
    T low = kMost<T>;
    Mask tight = 0;
    for_workers(task.active, [&](int j) {
      const T value = task.cost(i, j) + prices[j];
      if (value < low) {
        low = value;
        tight = 0;
      }
      if (value == low) tight |= only<Mask>(j);
    });
    task.low[i] = low;
    task.tight[i] = tight;
  });
}

// The slot of a mask in the table, which is at most half full.
template <class T, class Mask>
ESD_HD int find_slot(const Task<T, Mask>& task, Mask mask) {
  if (task.direct) return static_cast<int>(mask);
  auto slot = static_cast<int>((static_cast<std::uint64_t>(mask) * 0x9e3779b97f4a7c15ULL) >> 33) & (task.slots - 1);
  while (settle(&task.keys[slot], mask) != mask) slot = (slot + 1) & (task.slots - 1);
  return slot;
}

template <class Team, class T, class Mask>
ESD_HD void count_groups(Team& team, const Task<T, Mask>& task) {
  team.each(task.slots, [&](int slot) {
    task.keys[slot] = task.direct ? static_cast<Mask>(slot) : Mask{0};
    task.counts[slot] = 0;
  });
  team.each(task.rows, [&](int i) {
    task.slot_of[i] = find_slot(task, task.tight[i]);
    add(&task.counts[task.slot_of[i]], 1);
  });
}

// Lists the groups in the order of their slots.
template <class Block, class T, class Mask>
ESD_HD void list_groups(Block& block, const Task<T, Mask>& task) {
  const int groups = scan(
      block, task.board->sums, task.slots, [&](int slot) { return task.counts[slot] > 0 ? 1 : 0; },
      [&](int slot, int group, int used) {
        if (used == 0) return;
        task.masks[group] = task.keys[slot];
        task.origin[group] = slot;
      });
  block.one([&] { task.board->groups = groups; });
}

// Puts the groups in ascending order of their masks: a bitonic sort.
template <class Block, class T, class Mask>
ESD_HD void sort_groups(Block& block, const Task<T, Mask>& task) {
  if (task.direct) return;  // as they are listed
  const int groups = task.board->groups;
  int size = 1;
  while (size < groups) size *= 2;
  block.each(size - groups, [&](int i) { task.masks[groups + i] = static_cast<Mask>(~Mask{0}); });
  block.each(size - groups, [&](int i) { task.origin[groups + i] = -1; });
  for (int run = 2; run <= size; run *= 2)
    for (int distance = run / 2; distance > 0; distance /= 2)
      block.each(size / 2, [&](int pair) {
        const int low = pair / distance * distance * 2 + pair % distance, high = low + distance;
        const bool ascending = (low & run) == 0;
        const bool descends = task.masks[low] > task.masks[high] ||
                              (task.masks[low] == task.masks[high] && task.origin[low] < task.origin[high]);
        if (descends != ascending) return;
        const Mask mask = task.masks[low];
        const int origin = task.origin[low];
        task.masks[low] = task.masks[high];
        task.origin[low] = task.origin[high];
        task.masks[high] = mask;
        task.origin[high] = origin;
      });
}

template <class Block, class T, class Mask>
ESD_HD void size_groups(Block& block, const Task<T, Mask>& task) {
  block.each(task.board->groups, [&](int group) {
    task.sizes[group] = task.counts[task.origin[group]];
    task.position[task.origin[group]] = group;
  });
}

template <class T, class Mask>
ESD_HD int group_of(const Task<T, Mask>& task, int row) {
  return task.position[task.slot_of[row]];
}

}  // namespace esd
