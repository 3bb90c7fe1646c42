#include "engine/plan/initial_rows.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace esd {
namespace {

// Adds them to one worker's plan; `numbers`, [v], is scratch space.
void add_to(const InitialIds& initial, WorkerPlan& plan, Arena& arena, std::vector<std::uint32_t>& numbers) {
  const BatchIds& batch = initial.batch;
  const auto each_place = [&](auto use) {  // of the ids of the worker's samples
    for (std::size_t i = 0; i < plan.positions.size; ++i) {
      const std::uint32_t sample = arena.u32[plan.positions.begin + i];
      for (std::size_t at = batch.begin(sample); at < batch.begin(sample + 1); ++at) {
        use(initial.places[batch.indices[at]]);
      }
    }
  };
  constexpr std::uint32_t kAbsent = 0, kPresent = 1;
  std::fill(numbers.begin(), numbers.end(), kAbsent);
  std::size_t count = 0;
  each_place([&](BatchIndex place) {
    ++count;
    if (place != InitialIds::kAdmitted) numbers[place] = kPresent;
  });
  plan.initial_ids =
      reserve_column(arena.u64, static_cast<std::size_t>(std::count(numbers.begin(), numbers.end(), kPresent)));
  std::uint64_t* id = arena.u64.data() + plan.initial_ids.begin;
  auto next = static_cast<std::uint32_t>(plan.unique_ids.size);
  for (std::size_t place = 0; place < numbers.size(); ++place) {
    if (numbers[place] == kAbsent) continue;
    *id++ = initial.ids[place];
    numbers[place] = next++;
  }
  const Span inverse = reserve_column(arena.u32, count);
  const std::uint32_t* admitted = arena.u32.data() + plan.inverse.begin;
  std::uint32_t* entry = arena.u32.data() + inverse.begin;
  each_place([&](BatchIndex place) { *entry++ = place == InitialIds::kAdmitted ? *admitted++ : numbers[place]; });
  plan.inverse = inverse;
}

}  // namespace

void add_initial_rows(const InitialIds& initial, IterationPlans& plans) {
  if (initial.ids.empty()) return;
  std::vector<std::uint32_t> numbers(initial.ids.size());
  for (WorkerPlan& plan : plans.workers) add_to(initial, plan, plans.arena, numbers);
}

}  // namespace esd
