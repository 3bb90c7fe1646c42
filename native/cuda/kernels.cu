// One kernel: NVRTC compiles it for one type of costs, one width of worker sets, one algorithm, one kind of launch,
// given as macros.
//   ESD_COST  std::int32_t, float, double        ESD_ALGORITHM  kDual, kHungarian
//   ESD_MASK  std::uint32_t, std::uint64_t       ESD_GRID       0: one block, 1: a cooperative grid
#include "cuda/device_team.h"
#include "cuda/solve.h"

// `memory` is workspace_bytes(rows, workers) large, its first 256 bytes zero.
extern "C" __global__ void __launch_bounds__(esd::kBlockThreads, 1)
    solve(const ESD_COST* costs, int rows, int workers, const int* capacities, const double* start,
          std::int64_t* report, int* assignment, ESD_COST* chosen, char* memory) {
  const esd::Call<ESD_COST> call{costs, rows, workers, capacities, start, report, assignment, chosen};
#if ESD_GRID
  esd::GridTeam team(reinterpret_cast<esd::GridBarrier*>(memory));
  char* board = memory + 256;
#else
  esd::BlockTeam team;
  __shared__ __align__(16) char board[sizeof(esd::LargestBoard)];  // a step then costs a fraction of a microsecond
#endif
  esd::solve_call<ESD_MASK>(team, call, esd::CudaAlgorithm::ESD_ALGORITHM, memory + esd::kBoardBytes, board);
}
