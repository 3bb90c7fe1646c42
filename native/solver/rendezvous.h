// Rendezvous hashing with exact quotas: samples of the same value go to the same worker, batch after batch, as far as
// the workers' room allows.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "common/mix64.h"

namespace esd {

namespace rendezvous {

// The distance of a worker from a value. Each of several workers is the nearest with a probability proportional to its
// `share`. The distance depends on this worker alone: changes of other workers and their shares do not affect it.
inline double distance(std::uint64_t value, std::size_t worker, int share) {
  const std::uint64_t hash = mix64(value ^ mix64(worker + 1));
  return -std::log((static_cast<double>(hash >> 11) + 1) * 0x1p-53) / share;
}

}  // namespace rendezvous

// Assigns each sample to the nearest worker with room. Values are placed in the order of their hashes, samples of one
// value in the order of the batch, so in every batch the same values find no room at their nearest worker. `room` [n]
// sums to at least `samples`, and is also each worker's share; `worker_of` is [samples].
inline void assign_by_value(const std::uint64_t* values, std::size_t samples, std::vector<int> room,
                            std::int32_t* worker_of) {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> order(samples);
  for (std::uint32_t i = 0; i < samples; ++i) order[i] = {mix64(values[i]), i};
  std::sort(order.begin(), order.end());
  std::vector<std::int32_t> workers;  // by distance from the present value, without workers that have no share
  for (std::size_t j = 0; j < room.size(); ++j) {
    if (room[j] > 0) workers.push_back(static_cast<std::int32_t>(j));
  }
  const std::vector<int> shares = room;
  std::vector<double> distances(room.size());
  for (std::size_t at = 0; at < samples; ++at) {
    const auto [value, sample] = order[at];
    if (at == 0 || value != order[at - 1].first) {
      for (const std::int32_t j : workers) distances[j] = rendezvous::distance(value, j, shares[j]);
      std::sort(workers.begin(), workers.end(), [&](std::int32_t a, std::int32_t b) {
        return distances[a] != distances[b] ? distances[a] < distances[b] : a < b;
      });
    }
    const std::int32_t worker =
        *std::find_if(workers.begin(), workers.end(), [&](std::int32_t j) { return room[j] > 0; });
    --room[worker];
    worker_of[sample] = worker;
  }
}

}  // namespace esd
