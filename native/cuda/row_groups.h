// The rows under prices, by a team of threads: their tight workers, and the groups of rows with the same tight workers
// (see solver/row_groups.h).
#pragma once

#include "common/host_device.h"
#include "cuda/atomics.h"
#include "cuda/scan.h"
#include "cuda/workspace.h"

namespace esd {

// Writes each row's least cost + price and the workers that reach it to work.low and work.tight.
template <typename Team, typename T, typename Set>
ESD_HD void find_tight_workers(Team& team, const Workspace<T, Set>& work) {
  const T* prices = work.board->prices;
  team.each(work.rows, [&](int i) {
    T low = kLargest<T>;
    Set tight{};
    work.active.for_each([&](int j) {
      const T value = work.cost(i, j) + prices[j];
      if (value < low) {
        low = value;
        tight = Set{};
      }
      if (value == low) tight.add(j);
    });
    work.low[i] = low;
    work.tight[i] = tight;
  });
}

// The slot of a group in the table, which is at most half full.
template <typename T, typename Set>
ESD_HD int find_slot(const Workspace<T, Set>& work, Set tight) {
  if (work.direct) return static_cast<int>(tight.bits);
  auto slot =
      static_cast<int>((static_cast<std::uint64_t>(tight.bits) * 0x9e3779b97f4a7c15ULL) >> 33) & (work.slots - 1);
  while (atomic_claim(&work.keys[slot], tight) != tight) slot = (slot + 1) & (work.slots - 1);
  return slot;
}

// Enters all rows into the table and counts the rows of each group.
template <typename Team, typename T, typename Set>
ESD_HD void count_groups(Team& team, const Workspace<T, Set>& work) {
  team.each(work.slots, [&](int slot) {
    work.keys[slot] = work.direct ? Set{static_cast<decltype(Set::bits)>(slot)} : Set{};
    work.counts[slot] = 0;
  });
  team.each(work.rows, [&](int i) {
    work.slot_of[i] = find_slot(work, work.tight[i]);
    atomic_add(&work.counts[work.slot_of[i]], 1);
  });
}

// Lists the groups in the order of their slots.
template <typename Block, typename T, typename Set>
ESD_HD void list_groups(Block& block, const Workspace<T, Set>& work) {
  const int groups = scan(
      block, work.board->sums, work.slots, [&](int slot) { return work.counts[slot] > 0 ? 1 : 0; },
      [&](int slot, int group, int used) {
        if (used == 0) return;
        work.group_tight[group] = work.keys[slot];
        work.origin[group] = slot;
      });
  block.one([&] { work.board->groups = groups; });
}

// Puts the groups in ascending order of their workers' bits, by a bitonic sort.
template <typename Block, typename T, typename Set>
ESD_HD void sort_groups(Block& block, const Workspace<T, Set>& work) {
  if (work.direct) return;  // They are listed in that order.
  const int groups = work.board->groups;
  int size = 1;
  while (size < groups) size *= 2;
  block.each(size - groups, [&](int i) { work.group_tight[groups + i] = Set::all(); });
  block.each(size - groups, [&](int i) { work.origin[groups + i] = -1; });
  for (int run = 2; run <= size; run *= 2)
    for (int distance = run / 2; distance > 0; distance /= 2)
      block.each(size / 2, [&](int pair) {
        const int low = pair / distance * distance * 2 + pair % distance, high = low + distance;
        const bool ascending = (low & run) == 0;
        const bool descends = work.group_tight[low].bits > work.group_tight[high].bits ||
                              (work.group_tight[low] == work.group_tight[high] && work.origin[low] < work.origin[high]);
        if (descends != ascending) return;
        const Set tight = work.group_tight[low];
        const int origin = work.origin[low];
        work.group_tight[low] = work.group_tight[high];
        work.origin[low] = work.origin[high];
        work.group_tight[high] = tight;
        work.origin[high] = origin;
      });
}

// Writes the size of each group, and where each slot's group is in the list.
template <typename Block, typename T, typename Set>
ESD_HD void size_groups(Block& block, const Workspace<T, Set>& work) {
  block.each(work.board->groups, [&](int group) {
    work.sizes[group] = work.counts[work.origin[group]];
    work.position[work.origin[group]] = group;
  });
}

template <typename T, typename Set>
ESD_HD int group_of(const Workspace<T, Set>& work, int row) {
  return work.position[work.slot_of[row]];
}

}  // namespace esd
