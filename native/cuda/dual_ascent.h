// Dual steepest ascent (see solver/dual_ascent.h) by a team of threads: every pass is a handful of steps.
#pragma once

#include "common/host_device.h"
#include "cuda/atomics.h"
#include "cuda/group_flow.h"
#include "cuda/row_groups.h"
#include "cuda/workspace.h"

namespace esd {

// Shifts the prices so that the least is 0; then they stay below twice the largest cost or their start.
template <typename T, typename Set>
ESD_HD void level_prices(const Workspace<T, Set>& work) {
  T* prices = work.board->prices;
  T least = kLargest<T>;
  work.active.for_each([&](int j) { least = prices[j] < least ? prices[j] : least; });
  work.active.for_each([&](int j) { prices[j] -= least; });
}

// Writes how much dearer the workers of `inside` must become before each row leaves them to work.lead, and the largest
// lead to board->largest_lead.
template <typename Team, typename T, typename Set>
ESD_HD void measure_leads(Team& team, const Workspace<T, Set>& work, Set inside) {
  Board<T, Set>& board = *work.board;
  team.one([&] { board.largest_lead = 0; });
  team.each(work.rows, [&](int i) {
    T in = kLargest<T>, out = kLargest<T>;
    work.active.for_each([&](int j) {
      const T value = work.cost(i, j) + board.prices[j];
      T& least = inside.contains(j) ? in : out;
      least = value < least ? value : least;
    });
    work.lead[i] = out - in;
    atomic_max(&board.largest_lead, static_cast<std::int64_t>(out - in));
  });
}

// Selects the lead that at most `rank` rows exceed and more than `rank` reach, digit by digit from the highest.
template <typename Team, typename T, typename Set>
ESD_HD std::int64_t select_lead(Team& team, const Workspace<T, Set>& work, int rank) {
  constexpr int kBits = 5;
  static_assert(1 << kBits == kDigits);
  Board<T, Set>& board = *work.board;
  int shift = 0;
  while ((board.largest_lead >> shift) >= kDigits) shift += kBits;
  std::int64_t found = 0;  // the digits of the lead above `shift`
  for (; shift >= 0; shift -= kBits) {
    team.each(kDigits, [&](int digit) { board.digits[digit] = 0; });
    team.each(work.rows, [&](int i) {
      const std::int64_t lead = work.lead[i];
      if (lead > 0 && lead >> shift >> kBits == found) atomic_add(&board.digits[(lead >> shift) & (kDigits - 1)], 1);
    });
    int digit = kDigits - 1;
    for (; board.digits[digit] <= rank; --digit) rank -= board.digits[digit];
    found = team.agree([&] { return found << kBits | digit; });
  }
  return found;
}

// Raises the prices of the workers of `violated` until no more rows insist on them than they can hold.
template <typename Team, typename T, typename Set>
ESD_HD void raise_prices(Team& team, const Workspace<T, Set>& work, Set violated) {
  Board<T, Set>& board = *work.board;
  int room = 0;
  violated.for_each([&](int j) { room += board.capacities[j]; });
  measure_leads(team, work, violated);
  const auto step = static_cast<T>(select_lead(team, work, room));
  team.one([&] {
    violated.for_each([&](int j) { board.prices[j] += step; });
    level_prices(work);
  });
}

// Groups the rows and finds their maximum flow under the board's prices. Returns the workers whose prices are too low.
template <typename Team, typename T, typename Set>
ESD_HD_CALL Set flow_under_prices(Team& team, const Workspace<T, Set>& work, bool sorted) {
  find_tight_workers(team, work);
  count_groups(team, work);
  team.lead([&](auto& block) {
    list_groups(block, work);
    if (sorted) sort_groups(block, work);
    size_groups(block, work);
    flow_groups(block, work);
    const Set violated = violated_workers(block, work);
    block.one([&] { work.board->found_workers = violated; });
  });
  return team.agree([&] { return work.board->found_workers; });
}

// The ascent ends after this many passes: costs of many magnitudes, or a distant start, can need millions of tiny
// steps.
constexpr int kPassLimit = 1024;

// Makes the board's prices optimal. Returns false when they are not after kPassLimit passes. `passes` counts them.
template <typename Team, typename T, typename Set>
ESD_HD bool ascend(Team& team, const Workspace<T, Set>& work, int& passes) {
  team.one([&] { level_prices(work); });
  for (passes = 1; passes <= kPassLimit; ++passes) {
    const Set violated = flow_under_prices(team, work, false);
    if (violated.empty()) return true;
    raise_prices(team, work, violated);
  }
  return false;
}

}  // namespace esd
