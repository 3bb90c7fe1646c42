// Dual steepest ascent (solver/dual_ascent.h) by a team: every pass is a handful of steps.
#pragma once

#include "cuda/group_flow.h"

namespace esd {

// Keeps the least price at 0, so that prices stay below twice the largest cost or their start.
template <class T, class Mask>
ESD_HD void level_prices(const Task<T, Mask>& task) {
  T* prices = task.board->prices;
  T least = kMost<T>;
  for_workers(task.active, [&](int j) { least = prices[j] < least ? prices[j] : least; });
  for_workers(task.active, [&](int j) { prices[j] -= least; });
}

// The leads of all rows over the workers of `inside`; the largest goes to board->most.
template <class Team, class T, class Mask>
ESD_HD void find_leads(Team& team, const Task<T, Mask>& task, Mask inside) {
  Board<T, Mask>& board = *task.board;
  team.one([&] { board.most = 0; });
  team.each(task.rows, [&](int i) {
    T in = kMost<T>, out = kMost<T>;
    for_workers(task.active, [&](int j) {
      const T value = task.cost(i, j) + board.prices[j];
      T& least = (inside & only<Mask>(j)) != 0 ? in : out;
      least = value < least ? value : least;
    });
    task.lead[i] = out - in;
    raise(&board.most, static_cast<std::int64_t>(out - in));
  });
}

// The lead that `rank` rows exceed at most and more than `rank` reach: digit by digit, from the highest.
template <class Team, class T, class Mask>
ESD_HD std::int64_t select_lead(Team& team, const Task<T, Mask>& task, int rank) {
  constexpr int kBits = 5;
  static_assert(1 << kBits == kDigits);
  Board<T, Mask>& board = *task.board;
  int shift = 0;
  while ((board.most >> shift) >= kDigits) shift += kBits;
  std::int64_t found = 0;  // its digits above `shift`
  for (; shift >= 0; shift -= kBits) {
    team.each(kDigits, [&](int digit) { board.digits[digit] = 0; });
    team.each(task.rows, [&](int i) {
      const std::int64_t lead = task.lead[i];
      if (lead > 0 && lead >> shift >> kBits == found) add(&board.digits[(lead >> shift) & (kDigits - 1)], 1);
    });
    int digit = kDigits - 1;
    for (; board.digits[digit] <= rank; --digit) rank -= board.digits[digit];
    found = team.agree([&] { return found << kBits | digit; });
  }
  return found;
}

// Prices of the workers of `violated` rise until no more rows insist on them than they can hold.
template <class Team, class T, class Mask>
ESD_HD void raise_prices(Team& team, const Task<T, Mask>& task, Mask violated) {
  Board<T, Mask>& board = *task.board;
  int room = 0;
  for_workers(violated, [&](int j) { room += board.capacities[j]; });
  find_leads(team, task, violated);
  const auto step = static_cast<T>(select_lead(team, task, room));
  team.one([&] {
    for_workers(violated, [&](int j) { board.prices[j] += step; });
    level_prices(task);
  });
}

// Groups and their largest flow under the board's prices. Returns the workers whose prices are too low.
template <class Team, class T, class Mask>
ESD_HD_CALL Mask flow_under_prices(Team& team, const Task<T, Mask>& task, bool sorted) {
  find_tight(team, task);
  count_groups(team, task);
  team.lead([&](auto& block) {
    list_groups(block, task);
    if (sorted) sort_groups(block, task);
    size_groups(block, task);
    flow_groups(block, task);
    const Mask violated = violated_workers(block, task);
    block.one([&] { task.board->found = violated; });
  });
  return team.agree([&] { return task.board->found; });
}

// Costs of many magnitudes, and starts far off, can need millions of tiny steps.
constexpr int kPassLimit = 1024;

// Makes the board's prices optimal. False: not within kPassLimit passes. `passes` counts them.
template <class Team, class T, class Mask>
ESD_HD bool ascend(Team& team, const Task<T, Mask>& task, int& passes) {
  team.one([&] { level_prices(task); });
  for (passes = 1; passes <= kPassLimit; ++passes) {
    const Mask violated = flow_under_prices(team, task, false);
    if (violated == 0) return true;
    raise_prices(team, task, violated);
  }
  return false;
}

}  // namespace esd
