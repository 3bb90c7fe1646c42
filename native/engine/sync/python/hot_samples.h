// HotSamples as Python sees it: calls release the GIL, and run one after another.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/to_numpy.h"
#include "common/workers.h"
#include "engine/python/sample_ids.h"
#include "engine/python/table_sizes.h"
#include "engine/sync/hot_samples.h"

namespace esd {

class SharedHotSamples {
 public:
  SharedHotSamples(const std::vector<std::int64_t>& table_sizes, std::uint64_t room, unsigned workers,
                   std::uint64_t seed)
      : samples_(check_table_sizes(table_sizes), replication(room, workers, seed)) {}

  nanobind::object judge(const Ids& ids, const std::optional<Lengths>& lengths) {
    const SampleIds given = sample_ids(ids, lengths);
    std::vector<std::uint8_t> hot(given.samples);
    {
      const nanobind::gil_scoped_release released;
      const std::lock_guard<std::mutex> lock(mutex_);
      samples_.judge(given, hot.data());
    }
    return to_numpy(std::move(hot)).cast().attr("view")("bool");
  }

  bool train(const Ids& ids, const std::optional<Lengths>& lengths) {
    const SampleIds given = sample_ids(ids, lengths);
    const nanobind::gil_scoped_release released;
    const std::lock_guard<std::mutex> lock(mutex_);
    return samples_.train(given);
  }

  std::size_t memory_bytes() {
    const nanobind::gil_scoped_release released;
    const std::lock_guard<std::mutex> lock(mutex_);
    return samples_.memory_bytes();
  }

 private:
  static Replication replication(std::uint64_t room, unsigned workers, std::uint64_t seed) {
    if (room == 0) throw std::invalid_argument("room is 0, it must be at least 1");
    if (workers == 0 || workers > kMaxWorkers) {
      throw std::invalid_argument(std::to_string(workers) + " workers, there must be 1.." +
                                  std::to_string(kMaxWorkers));
    }
    return {room, seed, WorkerSet::first_of(workers)};
  }

  std::mutex mutex_;
  HotSamples samples_;
};

}  // namespace esd
