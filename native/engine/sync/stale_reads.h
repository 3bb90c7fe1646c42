// How stale the rows were that an iteration has read, where workers may train on copies that lack updates.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace esd {

// How many updates the rows lacked that training read, whoever has these.
struct StaleReads {
  static constexpr std::size_t kBuckets = 9;
  static constexpr std::array<std::uint32_t, kBuckets - 1> kMost = {0, 1, 2, 4, 8, 16, 32, 64};  // of all but the last

  std::array<std::int64_t, kBuckets> reads{};
  std::int64_t missing = 0, most_missing = 0;

  void add(std::uint32_t updates) {
    const auto bucket = std::lower_bound(kMost.begin(), kMost.end(), updates) - kMost.begin();
    ++reads[static_cast<std::size_t>(bucket)];
    missing += updates;
    most_missing = std::max<std::int64_t>(most_missing, updates);
  }
};

}  // namespace esd
