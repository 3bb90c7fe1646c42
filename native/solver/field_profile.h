// The transfers of dispatch by the value of each field, over known batches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/workers.h"
#include "solver/rendezvous.h"

namespace esd {

struct ProfiledBatches {
  const std::uint64_t* ids;  // [samples, fields], batch after batch
  std::size_t samples;       // of all batches together
  std::size_t fields;
  const std::vector<std::size_t>& ends;  // by batch, the end of its samples
};

namespace rendezvous {

// The workers of all samples by the values of one field, [samples].
inline std::vector<std::int32_t> assign_batches(const ProfiledBatches& batches, std::size_t field,
                                                const std::vector<std::vector<int>>& rooms) {
  std::vector<std::int32_t> worker_of(batches.samples);
  std::vector<std::uint64_t> values;
  std::size_t begin = 0;
  for (std::size_t b = 0; b < batches.ends.size(); begin = batches.ends[b++]) {
    values.clear();
    for (std::size_t i = begin; i < batches.ends[b]; ++i) values.push_back(batches.ids[i * batches.fields + field]);
    assign_by_value(values.data(), values.size(), rooms[b], worker_of.data() + begin);
  }
  return worker_of;
}

// The cost of bringing one row from the workers that trained it last to the workers that train it now.
template <typename Set>
inline std::int64_t moving_cost(Set last, Set now, const std::int32_t* link_costs) {
  std::int64_t cost = 0;
  const Set latest = last.when(!last.several());
  (now - latest).for_each([&](int j) { cost += link_costs[j]; });
  if (!(now - latest).empty() || last.several()) last.for_each([&](int j) { cost += link_costs[j]; });
  return cost;
}

}  // namespace rendezvous

// By field, the cost of all pulls and update pushes if every batch were assigned by this field's values, with caches
// that are empty at first and never evict, [fields]. `rooms` are the workers' samples, by batch and worker;
// `link_costs` [workers].
template <typename Set>
std::vector<std::int64_t> profile_fields(const ProfiledBatches& batches, const std::vector<std::vector<int>>& rooms,
                                         const std::int32_t* link_costs) {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> uses;  // every id, with the sample that uses it
  uses.reserve(batches.samples * batches.fields);
  for (std::size_t at = 0; at < batches.samples * batches.fields; ++at) {
    uses.emplace_back(batches.ids[at], static_cast<std::uint32_t>(at / batches.fields));
  }
  std::sort(uses.begin(), uses.end());
  std::vector<std::uint32_t> batch_of(batches.samples);
  for (std::size_t b = 1; b < batches.ends.size(); ++b) {
    std::fill(batch_of.begin() + static_cast<std::ptrdiff_t>(batches.ends[b - 1]),
              batch_of.begin() + static_cast<std::ptrdiff_t>(batches.ends[b]), static_cast<std::uint32_t>(b));
  }
  std::vector<std::int64_t> costs(batches.fields);
  for (std::size_t field = 0; field < batches.fields; ++field) {
    const std::vector<std::int32_t> worker_of = rendezvous::assign_batches(batches, field, rooms);
    Set last{}, now{};
    for (std::size_t at = 0; at < uses.size(); ++at) {
      const auto [id, sample] = uses[at];
      now.add(worker_of[sample]);
      const bool more = at + 1 < uses.size() && uses[at + 1].first == id;
      if (more && batch_of[uses[at + 1].second] == batch_of[sample]) continue;
      costs[field] += rendezvous::moving_cost(last, now, link_costs);
      last = more ? now : Set{};
      now = {};
    }
  }
  return costs;
}

}  // namespace esd
