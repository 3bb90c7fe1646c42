// A whole solve by a team of threads: what a CUDA kernel runs, and the CPU's emulation of it.
#pragma once

#include "cuda/finish.h"
#include "cuda/hungarian.h"
#include "cuda/intake.h"

namespace esd {

constexpr int kIntakeBytes = 256;
static_assert(sizeof(Intake) <= kIntakeBytes);

enum class CudaAlgorithm { kDual, kHungarian };

// Words of the report, int64. Prices follow, [n], in units of the integers.
enum ReportWord {
  kBadEntry,     // of the matrix: negative, infinite or NaN; -1: none, and only then the rest is written
  kExponent,     // integers are costs times 2^exponent
  kGap,          // primal - dual; 0 proves the optimum
  kPasses,       // of the dual ascent
  kPhases,       // of the Hungarian algorithm; 0: it was not needed
  kAdjustments,  // of its matrix
  kPrices,
};

// Arguments and results of one solve, in memory that the team can reach.
template <class C>
struct Call {
  const C* costs;  // [rows][workers]
  int rows, workers;
  const int* capacities;  // [workers]
  const double* start;    // [workers], prices, or null
  std::int64_t* report;   // [kPrices + workers]
  int* assignment;        // [rows]
  C* chosen;              // [rows], their costs
};

template <class T, class Mask, class Team, class C>
ESD_HD void solve_integers(Team& team, const Call<C>& call, const Scale& scale, CudaAlgorithm algorithm, char* memory,
                           Board<T, Mask>* board) {
  Task<T, Mask> task;
  lay_out(task, memory, call.rows, call.workers);
  task.board = board;
  task.active = 0;
  for (int j = 0; j < call.workers; ++j)
    if (call.capacities[j] > 0) task.active |= only<Mask>(j);
  const int first = lowest_worker(task.active);
  const PowerOfTwo power(scale.exponent);
  team.one([&] {
    int sum = 0;
    for (int j = 0; j < call.workers; ++j) {
      board->capacities[j] = call.capacities[j];
      board->starts[j] = sum;
      board->prices[j] = 0;
      if (call.start != nullptr)
        board->prices[j] = static_cast<T>(start_price(call.start[j], call.start[first], scale.largest, power));
      sum += call.capacities[j];
    }
  });
  convert(team, call.costs, scale, task);

  int passes = 0, phases = 0, adjustments = 0;
  const bool starred = algorithm == CudaAlgorithm::kHungarian || !ascend(team, task, passes);
  if (starred) hungarian(team, task, phases, adjustments);
  finish(team, task, starred);

  team.each(call.rows, [&](int i) {
    const int j = task.worker_of[i];
    call.assignment[i] = j;
    call.chosen[i] = call.costs[static_cast<std::ptrdiff_t>(i) * call.workers + j];
  });
  team.one([&] {
    call.report[kExponent] = scale.exponent;
    call.report[kGap] = board->gap;
    call.report[kPasses] = passes;
    call.report[kPhases] = phases;
    call.report[kAdjustments] = adjustments;
    for (int j = 0; j < call.workers; ++j) call.report[kPrices + j] = board->prices[j];
  });
}

// `memory` is workspace_bytes(rows, workers) large, `board` a LargestBoard, where only one of the widths is used.
template <class Mask, class Team, class C>
ESD_HD void solve_call(Team& team, const Call<C>& call, CudaAlgorithm algorithm, char* memory, void* board) {
  const Scale scale = measure(team, call.costs, call.rows * call.workers, reinterpret_cast<Intake*>(memory));
  team.one([&] { call.report[kBadEntry] = scale.bad; });
  if (scale.bad >= 0) return;
  if (scale.narrow)
    solve_integers(team, call, scale, algorithm, memory + kIntakeBytes, static_cast<Board<std::int32_t, Mask>*>(board));
  else
    solve_integers(team, call, scale, algorithm, memory + kIntakeBytes, static_cast<Board<std::int64_t, Mask>*>(board));
}

using LargestBoard = Board<std::int64_t, std::uint64_t>;
constexpr int kBoardBytes = (256 + static_cast<int>(sizeof(LargestBoard)) + 255) / 256 * 256;  // with a grid's barrier

// Device memory of a solve, for a grid's board too.
ESD_HD std::int64_t workspace_bytes(int rows, int workers) {
  Task<std::int64_t, std::uint64_t> task;
  return kBoardBytes + kIntakeBytes + lay_out(task, nullptr, rows, workers);
}

}  // namespace esd
