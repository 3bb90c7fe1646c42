// The last step of the joint search: the workers' numbers of samples are adjusted by the times that an assignment is
// expected to take.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "engine/batch/prepared_batch.h"
#include "engine/batch/preview.h"
#include "engine/batch/row_sizes.h"

namespace esd {

struct WorkloadLimits {
  const std::int32_t* least;   // [workers]
  const std::int32_t* most;    // [workers]
  const double* sample_costs;  // [workers], computation per sample in units of the link costs
  const double* fixed_costs;   // [workers], time that depends on no sample, in these units
};

// How long each worker is expected to take, [workers]: this iteration's operations on its link, but for evictions,
// computation, and the time that depends on no sample.
inline std::vector<double> expected_times(const PreparedBatch& batch, const RowSizes& sizes,
                                          const std::vector<std::int32_t>& assignment, const std::int32_t* link_costs,
                                          const WorkloadLimits& limits, unsigned workers) {
  const Preview expected = preview(batch, sizes, assignment.data(), assignment.size(), workers, false, true);
  std::vector<double> times(limits.fixed_costs, limits.fixed_costs + workers);
  for (const std::int32_t worker : assignment) times[static_cast<std::size_t>(worker)] += limits.sample_costs[worker];
  for (unsigned j = 0; j < workers; ++j) times[j] += expected.moved[j] * link_costs[j];
  return times;
}

// Workloads of the same sum, within the limits, that would bring the times nearer to their mean, `step` of the way.
inline std::vector<int> shifted_workloads(const std::vector<int>& workloads, const std::vector<double>& times,
                                          const WorkloadLimits& limits, double step) {
  const std::size_t n = workloads.size();
  const int total = std::accumulate(workloads.begin(), workloads.end(), 0);
  const double mean = std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(n);
  std::vector<double> wanted(n);
  for (std::size_t j = 0; j < n; ++j) {
    const double per_sample = std::max(times[j] - limits.fixed_costs[j], 1e-9) / std::max(workloads[j], 1);
    const double moved = workloads[j] - step * (times[j] - mean) / per_sample;
    wanted[j] = std::min<double>(std::max<double>(moved, limits.least[j]), limits.most[j]);
  }
  // What clipping leaves over goes to those with room for it, in proportion; whole numbers by largest remainder.
  const double missing = total - std::accumulate(wanted.begin(), wanted.end(), 0.0);
  std::vector<double> room(n);
  for (std::size_t j = 0; j < n; ++j) room[j] = missing > 0 ? limits.most[j] - wanted[j] : wanted[j] - limits.least[j];
  const double all_room = std::accumulate(room.begin(), room.end(), 0.0);
  std::vector<int> whole(n);
  for (std::size_t j = 0; j < n; ++j) {
    if (all_room > 0) wanted[j] += missing * room[j] / all_room;
    whole[j] = static_cast<int>(std::floor(std::max<double>(wanted[j], limits.least[j])));
  }
  std::vector<std::size_t> order(n);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return wanted[a] - whole[a] > wanted[b] - whole[b]; });
  int left = total - std::accumulate(whole.begin(), whole.end(), 0);
  for (std::size_t r = 0; left > 0; r = (r + 1) % n) {
    if (whole[order[r]] >= limits.most[order[r]]) continue;
    ++whole[order[r]];
    --left;
  }
  return whole;
}

}  // namespace esd
