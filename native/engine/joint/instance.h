// One batch as the joint optimiser sees it. Rows that one sample uses are a fixed cost of its place; only rows that
// several samples use tie the samples' costs together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/hot.h"
#include "common/mix64.h"
#include "engine/batch/prepared_batch.h"
#include "engine/joint/shared_row.h"

namespace esd {
// Places of the first `samples` [samples], by a hash of their ids. Samples with the same ids keep their order.
inline std::vector<std::uint32_t> content_order(const PreparedBatch& batch, std::size_t samples) {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> keys(samples);
  const std::uint32_t* numbers = batch.numbers.data();  // ranks of the ids, the same wherever a sample stands
  for (std::uint32_t i = 0; i < samples; ++i) {
    std::uint64_t key = 0;
    for (std::size_t f = 0; f < batch.fields; ++f) key = mix64(key ^ *numbers++);
    keys[i] = {key, i};
  }
  std::sort(keys.begin(), keys.end());
  std::vector<std::uint32_t> order(samples);
  for (std::size_t i = 0; i < samples; ++i) order[i] = keys[i].second;
  return order;
}

template <unsigned Width>
struct JointInstance {
  JointLinks<Width> links;
  std::size_t samples;
  std::vector<SharedRow> rows;          // those of two samples or more, ascending by id
  std::vector<std::int32_t> own_costs;  // [samples, Width], of the rows that no other sample uses
  std::vector<std::uint32_t> shared;    // places in `rows`, sample by sample
  std::vector<std::uint32_t> first;     // [samples + 1], where in `shared` each sample begins

  // Of some samples of the batch, by place. `next` [distinct]: who will train a row next, 0 if not planned; none are if empty.
  JointInstance(const PreparedBatch& batch, const std::vector<std::uint32_t>& places,
                const std::vector<WorkerMask>& next, const std::int32_t* link_costs, unsigned workers,
                const ReuseStatistics& reuse);

  std::int32_t* own(std::size_t sample) { return &own_costs[sample * Width]; }
};

inline SharedRow describe(const RowState& state, std::uint32_t size, WorkerMask next, const std::int32_t* pull) {
  const bool owned = state.kind == kOwned;
  const std::uint32_t owner = owned ? static_cast<std::uint32_t>(__builtin_ctzll(state.mask)) : SharedRow::kNobody;
  return {state.latest(),
          0,
          ~WorkerMask{0},
          owned ? pull[owner] : 0,
          owner,
          next ? ReuseStatistics::kCertain : ReuseStatistics::class_of(state.version + 1),
          static_cast<std::int32_t>(size),
          next};
}

namespace joint {

constexpr std::uint32_t kAlone = 0xffffffffu;

// costs[j] += what a row of size 1 that no other sample uses costs at worker j.
template <unsigned Width>
[[gnu::always_inline]] inline void add_own(const RowState& state, WorkerMask next, const JointLinks<Width>& links,
                                           std::int32_t* costs) {
  add_next(next, links, costs);
  if (state.kind != kOwned) return add_pulls(state.latest(), links, 0, costs);
  const auto owner = static_cast<unsigned>(__builtin_ctzll(state.mask));
  add_pulls(state.mask, links, links.pull[owner], costs);
  costs[owner] -= links.pull[owner];
}

// Sorts the rows of the samples at some places into own costs and places of shared rows. `place` [distinct + 1]: of each number
// in the shared rows, or kAlone. Returns the end of `shared`.
template <unsigned Width>
ESD_HOT std::uint32_t* sort_samples(const PreparedBatch& batch, const std::vector<std::uint32_t>& places,
                                    const std::vector<WorkerMask>& next, const std::uint32_t* place,
                                    const JointLinks<Width>& links, std::int32_t* own, std::uint32_t* shared,
                                    std::uint32_t* first) {
  const auto repeated = static_cast<std::uint32_t>(batch.distinct());
  std::uint32_t* const begin = shared;
  for (std::size_t i = 0; i < places.size(); ++i, own += Width) {
    const std::uint32_t* numbers = batch.numbers_once() + places[i] * batch.fields;
    first[i] = static_cast<std::uint32_t>(shared - begin);
    alignas(64) std::int32_t costs[Width] = {};
    for (std::size_t f = 0; f < batch.fields; ++f) {
      const std::uint32_t x = numbers[f];
      if (x == repeated) continue;
      *shared = place[x];
      if (place[x] != kAlone) {
        ++shared;
        continue;
      }
      const WorkerMask planned = next.empty() ? 0 : next[x];
      if (batch.sizes.empty()) {
        add_own(batch.states[x], planned, links, costs);
      } else {
        alignas(64) std::int32_t row_costs[Width] = {};
        add_own(batch.states[x], planned, links, row_costs);
        for (unsigned j = 0; j < Width; ++j) costs[j] += static_cast<std::int32_t>(batch.sizes[x]) * row_costs[j];
      }
    }
    for (unsigned j = 0; j < Width; ++j) own[j] = costs[j];
  }
  first[places.size()] = static_cast<std::uint32_t>(shared - begin);
  return shared;
}

}  // namespace joint

template <unsigned Width>
JointInstance<Width>::JointInstance(const PreparedBatch& batch, const std::vector<std::uint32_t>& places,
                                    const std::vector<WorkerMask>& next, const std::int32_t* link_costs,
                                    unsigned workers, const ReuseStatistics& reuse)
    : links(link_costs, workers, batch.sample_size, reuse),
      samples(places.size()),
      own_costs(samples * Width),
      shared(samples * batch.fields + 1),
      first(samples + 1) {
  std::vector<std::uint32_t> place(batch.distinct() + 1);  // first the number of samples
  for (const std::uint32_t sample : places) {
    const std::uint32_t* numbers = batch.numbers_once() + sample * batch.fields;
    for (std::size_t f = 0; f < batch.fields; ++f) ++place[numbers[f]];
  }
  for (std::size_t x = 0; x < batch.distinct(); ++x) {
    const bool alone = place[x] < 2;
    place[x] = alone ? joint::kAlone : static_cast<std::uint32_t>(rows.size());
    if (!alone) rows.push_back(describe(batch.states[x], batch.size(x), next.empty() ? 0 : next[x], links.pull));
  }
  const std::uint32_t* end =
      joint::sort_samples(batch, places, next, place.data(), links, own_costs.data(), shared.data(), first.data());
  shared.resize(static_cast<std::size_t>(end - shared.data()));
}

}  // namespace esd
