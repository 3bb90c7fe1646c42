// Solves random problems with both CUDA algorithms on threads, under the thread sanitizer: usage: cuda_races PROBLEMS.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "cuda/solve.h"
#include "cuda/thread_team.h"

namespace {

constexpr int kThreads = 5;

// The gap of the solution; 0 is right.
template <class Mask, class C>
std::int64_t solve(const std::vector<C>& costs, const std::vector<int>& capacities, esd::CudaAlgorithm algorithm) {
  const int workers = static_cast<int>(capacities.size()), rows = static_cast<int>(costs.size()) / workers;
  std::vector<std::int64_t> report(static_cast<std::size_t>(esd::kPrices + workers));
  std::vector<int> assignment(static_cast<std::size_t>(rows));
  std::vector<C> chosen(assignment.size());
  const esd::Call<C> call{costs.data(), rows,          workers,           capacities.data(),
                          nullptr,      report.data(), assignment.data(), chosen.data()};
  const auto memory = std::make_unique<char[]>(static_cast<std::size_t>(esd::workspace_bytes(rows, workers)));
  const auto board = std::make_unique<esd::LargestBoard>();
  esd::Meeting meeting(kThreads);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread)
    threads.emplace_back([&, thread] {
      esd::ThreadTeam team(meeting, thread);
      esd::solve_call<Mask>(team, call, algorithm, memory.get(), board.get());
    });
  for (std::thread& thread : threads) thread.join();
  return report[esd::kBadEntry] == -1 ? report[esd::kGap] : 1;
}

template <class C>
int failures(std::mt19937& random, int workers, int rows, C most) {
  std::vector<int> capacities(static_cast<std::size_t>(workers));
  for (int i = 0; i < rows; ++i) ++capacities[random() % capacities.size()];
  std::vector<C> costs(static_cast<std::size_t>(workers) * static_cast<std::size_t>(rows));
  for (C& cost : costs) cost = static_cast<C>(static_cast<double>(random()) / 4294967296.0 * static_cast<double>(most));
  int failed = 0;
  for (const auto algorithm : {esd::CudaAlgorithm::kDual, esd::CudaAlgorithm::kHungarian})
    failed += (workers <= 32 ? solve<std::uint32_t>(costs, capacities, algorithm)
                             : solve<std::uint64_t>(costs, capacities, algorithm)) != 0;
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
