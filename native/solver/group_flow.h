// Assigns all rows to tight workers within capacity, as far as the prices allow: a maximum flow over row groups.
//
// The flow is a preflow with exact distance labels. All rows are placed at once, which may overload workers. A phase
// labels every worker with its distance from a worker with room, where an arc j -> j' is a group that has rows at j and
// may use j'; then it moves the surplus one label down at a time. When no overloaded worker has a label, the flow is
// maximum, and the workers that the overloaded ones reach form a minimum cut: of all sets of workers that more rows
// insist on than the set can hold, the one with the widest margin.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "common/workers.h"
#include "solver/cheapest_workers.h"
#include "solver/problem.h"
#include "solver/row_groups.h"

namespace esd {

template <typename T, typename Set>
class GroupFlow {
 public:
  // Finds the maximum flow under `prices`. Sorted groups make the flow independent of the order of the rows.
  void run(const Columns<T>& columns, const T* prices, const int* capacities, int workers, bool sorted_groups = false) {
    capacities_ = capacities;
    workers_ = workers;
    low.resize(columns.stride);
    tight_.resize(columns.stride);
    find_tight_workers(columns, prices, low.data(), tight_.data());
    groups_.build(tight_.data(), columns.rows);
    if (sorted_groups) groups_.sort();
    spread();
    while (relieve()) {
    }
  }

  // The workers whose prices are too low: workers that surplus rows could reach. Empty if the prices are optimal.
  Set violated() const {
    Set set = overloaded();
    for (Set before{}; before != set;) {
      before = set;
      for (int g = 0; g < groups_.count(); ++g)
        if (!(users_[g] & set).empty()) set |= groups_.workers[g];
    }
    return set;
  }

  // Hands the rows of each group to its workers, in ascending order of both. Consumes the flow; `load` remains.
  void assign(int* worker_of_row) {
    for (std::size_t i = 0; i < groups_.of_row.size(); ++i) {
      const int group = groups_.of_row[i];
      const int j = users_[group].first();
      worker_of_row[i] = j;
      if (--placed(group, j) == 0) users_[group].remove(j);
    }
  }

  std::vector<T> low;     // [stride], the least cost + price of each row
  std::vector<int> load;  // [workers], the rows at each worker; above capacity at violated workers only

 private:
  int& placed(int group, int worker) { return placed_[static_cast<std::ptrdiff_t>(group) * workers_ + worker]; }

  void place(int group, int worker, int amount) {
    placed(group, worker) += amount;
    users_[group].add(worker);
    load[worker] += amount;
  }

  void take(int group, int worker, int amount) {
    int& rows = placed(group, worker);
    rows -= amount;
    if (rows == 0) users_[group].remove(worker);
    load[worker] -= amount;
  }

  // Places every row: first those with one tight worker, then the others where there is room, and last the rest at
  // their last tight worker.
  void spread() {
    const int groups = groups_.count();
    load.assign(workers_, 0);
    placed_.assign(static_cast<std::size_t>(groups) * workers_, 0);
    users_.assign(groups, Set{});
    left_.assign(groups, 0);
    for (int g = 0; g < groups; ++g) {
      const Set tight = groups_.workers[g];
      if (!tight.several()) place(g, tight.first(), groups_.sizes[g]);
    }
    for (int g = 0; g < groups; ++g) {
      if (!groups_.workers[g].several()) continue;
      int left = groups_.sizes[g];
      for (Set rest = groups_.workers[g]; !rest.empty() && left > 0; rest = rest.without_first()) {
        const int j = rest.first();
        const int amount = std::min(capacities_[j] - load[j], left);
        if (amount <= 0) continue;
        place(g, j, amount);
        left -= amount;
      }
      left_[g] = left;
    }
    for (int g = 0; g < groups; ++g)
      if (left_[g] > 0) place(g, groups_.workers[g].last(), left_[g]);
  }

  Set overloaded() const {
    Set set{};
    for (int j = 0; j < workers_; ++j)
      if (load[j] > capacities_[j]) set.add(j);
    return set;
  }

  // Moves surplus down the labels in one phase. Returns false when no surplus can reach a worker with room.
  bool relieve() {
    const Set surplus = overloaded();
    if (surplus.empty()) return false;
    Set levels[8 * sizeof(Set) + 1];  // the workers at each distance from one with room
    levels[0] = Set{};
    for (int j = 0; j < workers_; ++j)
      if (load[j] < capacities_[j]) levels[0].add(j);
    Set labelled = levels[0];
    int last = 0;
    while (!levels[last].empty()) {
      Set next{};
      for (int g = 0; g < groups_.count(); ++g)
        if (!(groups_.workers[g] & levels[last]).empty()) next |= users_[g];
      levels[++last] = next - labelled;
      labelled |= next;
    }
    if ((surplus & labelled).empty()) return false;
    for (int level = last - 1; level > 0; --level)
      levels[level].for_each(
          [&](int from) { levels[level - 1].for_each([&](int to) { move_surplus(from, to, level == 1); }); });
    return true;
  }

  // Moves worker j's surplus to worker `to`, group by group: as many rows as can move, or as `to` has room for.
  void move_surplus(int j, int to, bool within_room) {
    int limit = load[j] - capacities_[j];
    if (within_room) limit = std::min(limit, capacities_[to] - load[to]);
    const Set from = Set::only(j), into = Set::only(to);  // constants, which test quicker than contains() in this loop
    const Set* users = users_.data();
    const Set* tight = groups_.workers.data();
    const int groups = groups_.count();
    for (int g = 0; g < groups && limit > 0; ++g) {
      if ((users[g] & from).empty() || (tight[g] & into).empty()) continue;
      const int amount = std::min(placed(g, j), limit);
      take(g, j, amount);
      place(g, to, amount);
      limit -= amount;
    }
  }

  const int* capacities_ = nullptr;  // [workers], the caller's
  int workers_ = 0;
  std::vector<Set> tight_;  // [stride], the tight workers of each row
  RowGroups<Set> groups_;
  std::vector<int> placed_;  // [groups][workers], the rows of a group at a worker
  std::vector<Set> users_;   // [groups], the workers with rows of the group
  std::vector<int> left_;    // [groups], the rows of a group that `spread` has not placed yet
};

}  // namespace esd
