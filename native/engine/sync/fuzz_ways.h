// A way to synchronise for a random job of fuzz.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "common/workers.h"
#include "engine/sync/bounded.h"
#include "engine/sync/hot_samples.h"
#include "engine/sync/on_demand.h"
#include "engine/sync/proactive.h"
#include "engine/sync/push_all.h"
#include "engine/sync/replicated.h"
#include "engine/sync/replication.h"
#include "engine/sync/uncached.h"

namespace esd {

struct DrawnWay {
  std::unique_ptr<Way> way;
  bool looks_ahead = false;
  std::vector<std::int32_t> present;  // workers that may be assigned samples
};

// Some of the workers, or all.
template <typename Random>
WorkerSet draw_members(Random& random, unsigned workers) {
  const auto all = WorkerSet::first_of(workers);
  WorkerSet some{};
  for (unsigned drawn = 0; drawn < kMaxWorkers; drawn += 64) {
    some |= WorkerSet{static_cast<WorkerBits>(WorkerBits{random.next()} << drawn)};
  }
  some &= all;
  return some.empty() ? all : some;
}

template <typename Random>
DrawnWay draw_way(Random& random, const std::vector<std::uint32_t>& cache_sizes, std::size_t tables) {
  const auto workers = static_cast<unsigned>(cache_sizes.size());
  std::uint32_t least = cache_sizes[0];
  for (const std::uint32_t size : cache_sizes) least = size < least ? size : least;
  DrawnWay drawn;
  auto members = WorkerSet::first_of(workers);
  switch (random.below(7)) {
    case 0: drawn.way = std::make_unique<WayOf<PushAll>>(); break;
    case 1: drawn.way = std::make_unique<WayOf<Uncached>>(); break;
    case 2:
      drawn.way = std::make_unique<WayOf<Proactive>>();
      drawn.looks_ahead = true;
      break;
    case 3:
      if (least < 2) break;
      members = draw_members(random, workers);
      drawn.way = std::make_unique<WayOf<Replicated>>(
          Replicated::Options{1 + random.below(least - 1), members, random.next(), 0});
      break;
    case 4: {
      std::vector<bool> additive(tables);
      for (std::size_t table = 0; table < tables; ++table) additive[table] = random.below(2) == 0;
      const StalenessBounds bounds{static_cast<std::uint32_t>(random.below(9)),
                                   static_cast<std::uint32_t>(random.below(4))};
      drawn.way = std::make_unique<WayOf<Bounded>>(Bounded::Options{bounds, additive});
      break;
    }
    default: break;
  }
  if (!drawn.way) drawn.way = std::make_unique<WayOf<OnDemand>>(OnDemand::Options{random.below(2) == 0});
  members.for_each([&](unsigned j) { drawn.present.push_back(static_cast<std::int32_t>(j)); });
  return drawn;
}

// What tells which samples of a stream are hot, for a random way that makes some so.
template <typename Random>
HotSamples draw_hot_samples(Random& random, std::vector<std::uint32_t> table_sizes) {
  const auto workers = static_cast<unsigned>(1 + random.below(8));
  const std::uint64_t room = 1 + random.below(60), seed = random.next();
  return {std::move(table_sizes), Replication(room, seed, draw_members(random, workers))};
}

}  // namespace esd
