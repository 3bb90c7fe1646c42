// The samples to place as the joint search sees them. Rows that one sample uses are a fixed cost of where it goes; only
// rows that several samples use tie the samples' costs together.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/hot.h"
#include "common/mix64.h"
#include "common/workers.h"
#include "engine/batch/prepared_batch.h"
#include "engine/batch/row_sizes.h"
#include "engine/joint/reuse.h"
#include "engine/joint/shared_row.h"
#include "engine/rows/index_types.h"
#include "engine/rows/row_state.h"

namespace esd {

// The first `samples` of a batch, [samples], ordered by a hash of their ids, not by where they stand. Samples with the
// same ids keep their order.
inline std::vector<SampleIndex> content_order(const PreparedBatch& batch, std::size_t samples) {
  std::vector<std::pair<std::uint64_t, SampleIndex>> keys(samples);
  const BatchIndex* indices = batch.indices.data();  // the ranks of the ids, the same wherever a sample stands
  for (SampleIndex i = 0; i < samples; ++i) {
    // Where samples differ in size, their sizes count, too: mix64 leaves 0 as it is.
    std::uint64_t key = batch.begins.empty() ? 0 : batch.begin(i + 1) - batch.begin(i);
    for (const BatchIndex* const end = batch.indices.data() + batch.begin(i + 1); indices < end;) {
      key = mix64(key ^ *indices++);
    }
    keys[i] = {key, i};
  }
  std::sort(keys.begin(), keys.end());
  std::vector<SampleIndex> order(samples);
  for (std::size_t i = 0; i < samples; ++i) order[i] = keys[i].second;
  return order;
}

using SharedIndex = std::uint32_t;  // of a row in JointInstance::rows

template <unsigned Width>
struct JointInstance {
  JointLinks<Width> links;
  std::size_t samples;
  std::vector<SharedRow> rows;               // those of two samples or more, ascending by id
  std::vector<std::int32_t> own_costs;       // [samples, Width], of the rows that no other sample uses
  std::vector<SharedIndex> shared;           // the shared rows of the samples, one sample behind the other
  std::vector<std::uint32_t> shared_begins;  // [samples + 1], where in `shared` each sample begins

  // Of the samples `order` of a batch: sample i here is order[i] there. `next` [distinct] are the workers that will
  // train each row next, none where that is not planned; if `next` is empty, it is planned for no row.
  JointInstance(const PreparedBatch& batch, const std::vector<SampleIndex>& order, const std::vector<WorkerSet>& next,
                const std::int32_t* link_costs, unsigned workers, const RowSizes& sizes, const ReuseStatistics& reuse);

  std::int32_t* own(std::size_t sample) { return &own_costs[sample * Width]; }
};

template <unsigned Width>
SharedRow describe(const RowState& state, std::uint32_t size, TableNumber table, WorkerSet next,
                   const JointLinks<Width>& links) {
  const std::uint32_t reuse = next.empty() ? ReuseStatistics::class_of(state.trainings + 1) : ReuseStatistics::kCertain;
  const bool owned = state.kind == kOwned;
  const auto owner = owned ? static_cast<std::uint8_t>(state.holders.first()) : SharedRow::kNobody;
  return {state.latest(),
          WorkerSet{},
          WorkerSet::all(),
          owned ? links.pull[owner] : 0,
          table * ReuseStatistics::kClasses + reuse,
          static_cast<std::int32_t>(size),
          owner,
          table,
          state.trainings == 0,
          next};
}

namespace joint {

constexpr SharedIndex kNotShared = 0xffffffffu;
constexpr SharedIndex kCostless = 0xfffffffeu;  // a pinned row: it is at hand everywhere, whoever trains it

// costs[j] += what a row of size 1 that no other sample uses costs at worker j.
template <unsigned Width>
[[gnu::always_inline]] inline void add_own(const RowState& state, WorkerSet next, const JointLinks<Width>& links,
                                           TableNumber table, std::int32_t* costs) {
  add_next(next, links, table, costs);
  if (state.kind != kOwned)
    return add_pulls<Width>(state.latest(), links.pulled_alone(state.trainings == 0, table), 0, costs);
  const int owner = state.holders.first();
  add_pulls<Width>(state.holders, links.pull, links.pull[owner], costs);
  costs[owner] -= links.pull[owner];
}

// Splits the rows of the samples into own costs and shared rows. `shared_index` [distinct] tells of each row where it
// is among the shared ones, or kNotShared or kCostless. Returns the end of `shared`.
template <unsigned Width>
ESD_HOT SharedIndex* split_rows(const PreparedBatch& batch, const RowSizes& sizes,
                                const std::vector<SampleIndex>& order, const std::vector<WorkerSet>& next,
                                const SharedIndex* shared_index, const JointLinks<Width>& links, std::int32_t* own,
                                SharedIndex* shared, std::uint32_t* shared_begins) {
  const auto repeated = static_cast<BatchIndex>(batch.distinct());
  SharedIndex* const begin = shared;
  for (std::size_t i = 0; i < order.size(); ++i, own += Width) {
    const BatchIndex* const end = batch.without_repeats() + batch.begin(order[i] + std::size_t{1});
    shared_begins[i] = static_cast<std::uint32_t>(shared - begin);
    alignas(64) std::int32_t costs[Width] = {};
    for (const BatchIndex* at = batch.without_repeats() + batch.begin(order[i]); at < end; ++at) {
      const BatchIndex x = *at;
      if (x == repeated) continue;
      *shared = shared_index[x];
      if (shared_index[x] == kCostless) continue;
      if (shared_index[x] != kNotShared) {
        ++shared;
        continue;
      }
      const WorkerSet planned = next.empty() ? WorkerSet{} : next[x];
      if (batch.sizes.empty()) {
        add_own(batch.states[x], planned, links, 0, costs);
      } else {
        alignas(64) std::int32_t row_costs[Width] = {};
        add_own(batch.states[x], planned, links, sizes.table_of(batch.ids[x]), row_costs);
        for (unsigned j = 0; j < Width; ++j) costs[j] += static_cast<std::int32_t>(batch.sizes[x]) * row_costs[j];
      }
    }
    for (unsigned j = 0; j < Width; ++j) own[j] = costs[j];
  }
  shared_begins[order.size()] = static_cast<std::uint32_t>(shared - begin);
  return shared;
}

}  // namespace joint

template <unsigned Width>
JointInstance<Width>::JointInstance(const PreparedBatch& batch, const std::vector<SampleIndex>& order,
                                    const std::vector<WorkerSet>& next, const std::int32_t* link_costs,
                                    unsigned workers, const RowSizes& sizes, const ReuseStatistics& reuse)
    : links(link_costs, workers, batch.sample_size, sizes, reuse),
      samples(order.size()),
      own_costs(samples * Width),
      shared(batch.indices.size() + 1),
      shared_begins(samples + 1) {
  std::vector<std::uint32_t> users(batch.distinct() + 1);  // samples that use each row; behind them, repeats
  for (const SampleIndex sample : order) {
    const BatchIndex* const end = batch.without_repeats() + batch.begin(sample + std::size_t{1});
    for (const BatchIndex* at = batch.without_repeats() + batch.begin(sample); at < end; ++at) ++users[*at];
  }
  std::vector<SharedIndex> shared_index(batch.distinct());
  for (std::size_t x = 0; x < batch.distinct(); ++x) {
    if (batch.states[x].pinned) {
      shared_index[x] = joint::kCostless;
      continue;
    }
    const bool is_shared = users[x] >= 2;
    shared_index[x] = is_shared ? static_cast<SharedIndex>(rows.size()) : joint::kNotShared;
    if (!is_shared) continue;
    const TableNumber table = sizes.table_of(batch.ids[x]);
    rows.push_back(describe(batch.states[x], batch.size(x), table, next.empty() ? WorkerSet{} : next[x], links));
  }
  const SharedIndex* end = joint::split_rows(batch, sizes, order, next, shared_index.data(), links, own_costs.data(),
                                             shared.data(), shared_begins.data());
  shared.resize(static_cast<std::size_t>(end - shared.data()));
}

}  // namespace esd
