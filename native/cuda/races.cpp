// Solves random problems with both CUDA algorithms on real threads, under the thread sanitizer.
//
// Usage: cuda_races PROBLEMS
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "common/workers.h"
#include "cuda/host_teams.h"
#include "cuda/solve.h"

namespace {

constexpr int kThreads = 5;

// Returns the gap of the solution; anything but 0 is a failure.
template <typename Set, typename C>
std::int64_t solve(const std::vector<C>& costs, const std::vector<int>& capacities, esd::CudaAlgorithm algorithm) {
  const int workers = static_cast<int>(capacities.size()), rows = static_cast<int>(costs.size()) / workers;
  std::vector<std::int64_t> report(esd::kPrices + workers);
  std::vector<int> assignment(rows);
  std::vector<C> chosen_costs(assignment.size());
  const esd::SolveCall<C> call{costs.data(), rows,          workers,           capacities.data(),
                               nullptr,      report.data(), assignment.data(), chosen_costs.data()};
  const auto memory = std::make_unique<char[]>(esd::workspace_bytes(rows, workers));
  const auto board = std::make_unique<esd::LargestBoard>();
  esd::Barrier barrier(kThreads);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      esd::ThreadTeam team(barrier, thread);
      esd::solve_call<Set>(team, call, algorithm, memory.get(), board.get());
    });
  for (std::thread& thread : threads) thread.join();
  return report[esd::kBadEntry] == -1 ? report[esd::kGap] : 1;
}

// Solves one random problem with both algorithms and returns how many of them failed.
template <typename C>
int failures(std::mt19937& random, int workers, int rows, C most) {
  std::vector<int> capacities(workers);
  for (int i = 0; i < rows; ++i) ++capacities[random() % capacities.size()];
  std::vector<C> costs(static_cast<std::size_t>(workers) * rows);
  for (C& cost : costs) cost = static_cast<C>(static_cast<double>(random()) / 4294967296.0 * static_cast<double>(most));
  int failed = 0;
  for (const auto algorithm : {esd::CudaAlgorithm::kDual, esd::CudaAlgorithm::kHungarian})
    failed += (workers <= 32 ? solve<esd::NarrowWorkerSet>(costs, capacities, algorithm)
                             : solve<esd::WorkerSet>(costs, capacities, algorithm)) != 0;
  return failed;
}

}  // namespace

int main(int count, char** arguments) {
  std::mt19937 random(5);
  const int problems = count > 1 ? std::atoi(arguments[1]) : 10;
  int failed = 0;
  for (int problem = 0; problem < problems; ++problem) {
    const int workers = problem % 8 == 7 ? 40 : 1 + static_cast<int>(random() % 8);
    const int rows = 1 + static_cast<int>(random() % 60);
    failed += failures<std::int32_t>(random, workers, rows, 5);
    failed += failures<std::int32_t>(random, workers, rows, 2000000000);
    failed += failures<float>(random, workers, rows, 1.0f);
  }
  std::printf("%d problems, %d failed\n", problems, failed);
  return failed == 0 ? 0 : 1;
}
