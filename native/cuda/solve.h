// A whole solve by a team of threads, for the CUDA kernel and for its emulation on the CPU.
#pragma once

#include "common/host_device.h"
#include "common/workers.h"
#include "cuda/canonical_answer.h"
#include "cuda/dual_ascent.h"
#include "cuda/hungarian.h"
#include "cuda/integer_costs.h"
#include "cuda/workspace.h"
#include "solver/fixed_point.h"

namespace esd {

constexpr int kSummaryBytes = 256;
static_assert(sizeof(CostSummary) <= kSummaryBytes);

enum class CudaAlgorithm { kDual, kHungarian };

// The words of the report, int64. The prices [n] follow, in units of the integers.
enum ReportWord {
  kBadEntry,  // the first entry that is negative, infinite or NaN; -1 if there is none: only then the rest is written
  kExponent,  // The integers are the costs times 2^exponent.
  kGap,       // cost minus dual bound; 0 proves the optimum
  kPasses,    // passes of the dual ascent
  kPhases,    // phases of the Hungarian algorithm, 0 when it was not needed
  kAdjustments,  // how often it adjusted its matrix
  kPrices,
};

// Arguments and results of one solve, in memory that the team can reach.
template <typename C>
struct SolveCall {
  const C* costs;  // [rows][workers]
  int rows, workers;
  const int* capacities;  // [workers]
  const double* start;    // [workers], the prices to start from, or null
  std::int64_t* report;   // [kPrices + workers]
  int* assignment;        // [rows]
  C* chosen_costs;        // [rows], the costs of the assignment
};

// Solves in integers of type T and writes all of the report but its first word.
template <typename T, typename Set, typename Team, typename C>
ESD_HD void solve_integers(Team& team, const SolveCall<C>& call, const CostScale& scale, CudaAlgorithm algorithm,
                           char* memory, Board<T, Set>* board) {
  Workspace<T, Set> work;
  lay_out(work, memory, call.rows, call.workers);
  work.board = board;
  work.active = Set{};
  for (int j = 0; j < call.workers; ++j)
    if (call.capacities[j] > 0) work.active.add(j);
  const int first = work.active.first();
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
  convert_costs(team, call.costs, scale, work);

  int passes = 0, phases = 0, adjustments = 0;
  const bool starred = algorithm == CudaAlgorithm::kHungarian || !ascend(team, work, passes);
  if (starred) hungarian(team, work, phases, adjustments);
  make_canonical(team, work, starred);

  team.each(call.rows, [&](int i) {
    const int j = work.worker_of[i];
    call.assignment[i] = j;
    call.chosen_costs[i] = call.costs[static_cast<std::ptrdiff_t>(i) * call.workers + j];
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

// Solves in integers of the width that is exact. `memory` has workspace_bytes(rows, workers) bytes, `board` the size of
// a LargestBoard.
template <typename Set, typename Team, typename C>
ESD_HD void solve_call(Team& team, const SolveCall<C>& call, CudaAlgorithm algorithm, char* memory, void* board) {
  const CostScale scale =
      measure_costs(team, call.costs, call.rows * call.workers, reinterpret_cast<CostSummary*>(memory));
  team.one([&] { call.report[kBadEntry] = scale.bad; });
  if (scale.bad >= 0) return;
  if (scale.narrow)
    solve_integers(team, call, scale, algorithm, memory + kSummaryBytes, static_cast<Board<std::int32_t, Set>*>(board));
  else
    solve_integers(team, call, scale, algorithm, memory + kSummaryBytes, static_cast<Board<std::int64_t, Set>*>(board));
}

using LargestBoard = Board<std::int64_t, WorkerSet>;
// A grid's barrier takes the first 256 bytes.
constexpr int kBoardBytes = (256 + static_cast<int>(sizeof(LargestBoard)) + 255) / 256 * 256;

// The device memory that a solve works in, large enough for a grid's board and barrier as well.
ESD_HD std::int64_t workspace_bytes(int rows, int workers) {
  Workspace<std::int64_t, WorkerSet> work;
  return kBoardBytes + kSummaryBytes + lay_out(work, nullptr, rows, workers);
}

}  // namespace esd
