// Maximum flow from groups of rows through their tight workers, as a preflow with exact distance labels.
//
// All rows are placed at once, which may overload workers. A phase labels every worker with its distance from
// one with room (an arc j -> j' is a group that has rows at j and may use j'), then moves the surplus one label
// down at a time. When no overloaded worker has a label, the flow is maximum and what the overloaded ones reach
// is a minimum cut: the set of workers that more rows insist on than it can hold, by the widest margin.
#pragma once

#include "hd.h"

namespace esd {

template <class Mask>
struct Flow {
  const Mask* tight;      // [groups], not empty
  const int* sizes;       // [groups]
  const int* capacities;  // [workers]
  int groups;
  int workers;
  int* rows;    // [groups][workers]: rows of a group at a worker
  Mask* users;  // [groups]: workers with rows of the group
  int* load;    // [workers]
  int* left;    // [groups], scratch
};

template <class Mask>
ESD_HD void place(Flow<Mask>& f, int group, int worker, int amount) {
  f.rows[static_cast<std::ptrdiff_t>(group) * f.workers + worker] += amount;
  f.users[group] |= only<Mask>(worker);
  f.load[worker] += amount;
}

template <class Mask>
ESD_HD void take(Flow<Mask>& f, int group, int worker, int amount) {
  int& rows = f.rows[static_cast<std::ptrdiff_t>(group) * f.workers + worker];
  rows -= amount;
  if (rows == 0) f.users[group] &= static_cast<Mask>(~only<Mask>(worker));
  f.load[worker] -= amount;
}

// Places every row: first those with one tight worker, then the others where there is room, and last the rest at
// their last tight worker.
template <class Mask>
ESD_HD void spread(Flow<Mask>& f) {
  for (int j = 0; j < f.workers; ++j) f.load[j] = 0;
  for (std::ptrdiff_t e = 0; e < static_cast<std::ptrdiff_t>(f.groups) * f.workers; ++e) f.rows[e] = 0;
  for (int g = 0; g < f.groups; ++g) {
    f.users[g] = 0;
    f.left[g] = 0;
    if (is_single(f.tight[g])) place(f, g, lowest_worker(f.tight[g]), f.sizes[g]);
  }
  for (int g = 0; g < f.groups; ++g) {
    if (is_single(f.tight[g])) continue;
    int left = f.sizes[g];
    for (Mask rest = f.tight[g]; rest != 0 && left > 0; rest &= rest - 1) {
      const int j = lowest_worker(rest);
      const int room = f.capacities[j] - f.load[j];
      const int amount = room > left ? left : room;
      if (amount <= 0) continue;
      place(f, g, j, amount);
      left -= amount;
    }
    f.left[g] = left;
  }
  for (int g = 0; g < f.groups; ++g)
    if (f.left[g] > 0) place(f, g, highest_worker(f.tight[g]), f.left[g]);
}

template <class Mask>
ESD_HD Mask overloaded(const Flow<Mask>& f) {
  Mask set = 0;
  for (int j = 0; j < f.workers; ++j)
    if (f.load[j] > f.capacities[j]) set |= only<Mask>(j);
  return set;
}

// Moves worker j's surplus to worker `to`, group by group, as much as there is room where that counts.
template <class Mask>
ESD_HD void unload(Flow<Mask>& f, int j, int to, bool to_has_room) {
  int limit = f.load[j] - f.capacities[j];
  const int room = f.capacities[to] - f.load[to];
  if (to_has_room && room < limit) limit = room;
  for (int g = 0; g < f.groups && limit > 0; ++g) {
    if ((f.users[g] & only<Mask>(j)) == 0 || (f.tight[g] & only<Mask>(to)) == 0) continue;
    const int here = f.rows[static_cast<std::ptrdiff_t>(g) * f.workers + j];
    const int amount = here < limit ? here : limit;
    take(f, g, j, amount);
    place(f, g, to, amount);
    limit -= amount;
  }
}

// One phase. levels is scratch, [workers + 1]. False: no surplus can reach a worker with room.
template <class Mask>
ESD_HD bool relieve(Flow<Mask>& f, Mask* levels) {
  const Mask surplus = overloaded(f);
  if (surplus == 0) return false;
  levels[0] = 0;
  for (int j = 0; j < f.workers; ++j)
    if (f.load[j] < f.capacities[j]) levels[0] |= only<Mask>(j);
  Mask labelled = levels[0];
  int last = 0;
  while (levels[last] != 0) {
    Mask next = 0;
    for (int g = 0; g < f.groups; ++g)
      if ((f.tight[g] & levels[last]) != 0) next |= f.users[g];
    levels[++last] = next & static_cast<Mask>(~labelled);
    labelled |= next;
  }
  if ((surplus & labelled) == 0) return false;
  for (int level = last - 1; level > 0; --level)
    for (Mask from = levels[level]; from != 0; from &= from - 1)
      for (Mask to = levels[level - 1]; to != 0; to &= to - 1)
        unload(f, lowest_worker(from), lowest_worker(to), level == 1);
  return true;
}

// The workers that surplus rows could reach: empty when the flow places every row within capacity.
template <class Mask>
ESD_HD Mask violated_set(const Flow<Mask>& f) {
  Mask set = overloaded(f);
  for (Mask before = 0; before != set;) {
    before = set;
    for (int g = 0; g < f.groups; ++g)
      if ((f.users[g] & set) != 0) set |= f.tight[g];
  }
  return set;
}

// Hands group `group`'s next row to a worker: the lowest one that is still owed rows.
template <class Mask>
ESD_HD int hand_out(Flow<Mask>& f, int group) {
  const int j = lowest_worker(f.users[group]);
  int& rows = f.rows[static_cast<std::ptrdiff_t>(group) * f.workers + j];
  if (--rows == 0) f.users[group] &= f.users[group] - 1;
  return j;
}

}  // namespace esd
