// The kernel. NVRTC compiles it for one type of costs, one width of worker sets, one algorithm and one kind of launch,
// which are given as macros (dispatcher/solvers/cuda/kernel.py):
//   ESD_COST        std::int32_t, float or double
//   ESD_WORKER_SET  NarrowWorkerSet or WorkerSet
//   ESD_ALGORITHM   kDual or kHungarian
//   ESD_GRID        0 for one block, 1 for a cooperative grid
#include "cuda/device_teams.h"
#include "cuda/solve.h"

// `memory` is workspace_bytes(rows, workers) large, its first 256 bytes zero.
extern "C" __global__ void __launch_bounds__(esd::kBlockThreads, 1)
    solve(const ESD_COST* costs, int rows, int workers, const int* capacities, const double* start,
          std::int64_t* report, int* assignment, ESD_COST* chosen_costs, char* memory) {
  const esd::SolveCall<ESD_COST> call{costs, rows, workers, capacities, start, report, assignment, chosen_costs};
#if ESD_GRID
  esd::GridTeam team(reinterpret_cast<esd::GridBarrier*>(memory));
  char* board = memory + 256;
#else
  esd::BlockTeam team;
  // In shared memory a step costs a fraction of a microsecond.
  __shared__ __align__(16) char board[sizeof(esd::LargestBoard)];
#endif
  esd::solve_call<esd::ESD_WORKER_SET>(team, call, esd::CudaAlgorithm::ESD_ALGORITHM, memory + esd::kBoardBytes, board);
}
