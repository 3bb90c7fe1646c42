// Joint dispatch of a batch: samples are placed so that the operations of the whole iteration cost least, each row
// being counted once per worker that trains it.
//
// This is a large-neighbourhood search: some samples are taken away, what each would add at each worker is computed
// against those that stay, and the exact transportation problem puts them back. The first round places all samples, on
// costs that ignore each other; then wide rounds free half of them, and narrow rounds those that are nearly
// indifferent.
//
// With a lookahead, all its batches are placed first, together with the batch at hand as one large batch, and then the
// batch at hand alone, knowing who is to train its rows next.
//
// Where samples have sites, each transportation problem falls apart into one for each site; what a sample would add is
// computed against all that stay, of whatever site. Sites exclude a lookahead and limits of workloads.
//
// Where workloads have limits, workers that are expected to take longer than the others give samples away at the end,
// as long as the slowest one becomes faster.
//
// Samples are taken in an order that depends on their content alone, so permuting the batch permutes the result.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <vector>

#include "engine/batch/prepared_batch.h"
#include "engine/batch/row_sizes.h"
#include "engine/joint/reuse.h"
#include "engine/joint/workload_shift.h"

namespace esd {

// Sites: a sample goes to a worker of its site only.
struct JointSites {
  const std::int32_t* of_samples;  // [samples], 0..count - 1
  const std::int32_t* of_workers;  // [workers]
  unsigned count;
};

struct JointRequest {
  const std::int32_t* link_costs;  // [workers], T_j, not negative
  const std::int32_t* capacities;  // [workers], they sum to the number of samples to place, the first ones of the batch
  unsigned workers;
  std::uint64_t seed;  // of the choices of samples
  unsigned wide_rounds;
  unsigned narrow_rounds;
  std::vector<std::uint32_t> lookahead;  // how many samples each batch that follows has; they are behind those to place
  std::chrono::steady_clock::time_point deadline;  // no round but the first starts after it
  std::array<unsigned, 2> most_rounds;             // besides the first: with the lookahead, and without
  const WorkloadLimits* limits = nullptr;          // how far workloads may depart from the capacities; null: not at all
  const JointSites* sites = nullptr;               // null: a sample may go to any worker
};

struct JointResult {
  std::vector<std::int32_t> assignment;  // [samples]
  double cost = 0;                       // in units of the link costs
  double start_cost = 0;                 // after the first round
  std::array<unsigned, 2> rounds{};      // besides the first: with the lookahead, and without
};

// Places samples of a prepared batch. A pure function of its arguments as long as the deadline is not reached; where it
// is, a search with as many rounds at most as there were gives the same.
JointResult joint_search(const PreparedBatch& batch, const RowSizes& sizes, const ReuseStatistics& reuse,
                         const JointRequest& request);

}  // namespace esd
