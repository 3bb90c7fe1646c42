#include "engine/batch/scores.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "common/hot.h"
#include "common/workers.h"
#include "engine/memory/column.h"
#include "engine/rows/index_types.h"
#include "engine/rows/row_state.h"

namespace esd {
namespace {

// Worker sets are turned into byte counters: eight workers are the bytes of one uint64 word, so that one addition
// counts for eight workers. An id adds at most 2 to a byte; bytes are emptied into int32 before they can overflow.
constexpr std::size_t kIdsPerByte = 127;

constexpr std::array<std::uint64_t, 256> make_spread() {
  std::array<std::uint64_t, 256> spread{};
  for (unsigned mask = 0; mask < 256; ++mask) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      if (mask >> bit & 1) spread[mask] |= std::uint64_t{1} << (8 * bit);
    }
  }
  return spread;
}
constexpr std::array<std::uint64_t, 256> kSpread = make_spread();  // bit j of a mask -> byte j

// By batch index of an id: byte counters of the workers, and a cost that every worker pays. The entry behind the last
// id is all zero; repeats within a sample point there.
struct IdTable {
  IdTable(std::size_t distinct, unsigned workers)
      : words(workers <= 8    ? 1
              : workers <= 16 ? 2
              : workers <= 32 ? 4
                              : kMaxWorkers / 8),
        counters((distinct + 1) * words),
        costs(distinct + 1) {
    set(distinct, {}, 0, 0);
  }

  void set(std::size_t x, WorkerSet set, unsigned weight, std::int32_t cost) {
    for (unsigned w = 0; w < words; ++w)
      counters[x * words + w] = kSpread[static_cast<std::uint8_t>(set.bits >> (8 * w))] * weight;
    costs[x] = cost;
  }

  unsigned words;
  Column<std::uint64_t> counters;  // [distinct + 1, words]
  Column<std::int32_t> costs;      // [distinct + 1]
};

// Adds up one sample: counts int32 [8 * words], and returns the sum of the common costs.
template <unsigned Words>
[[gnu::always_inline]] inline std::int32_t add_ids(const IdTable& table, const BatchIndex* indices, std::size_t count,
                                                   std::int32_t* counts) {
  std::int32_t cost = 0;
  std::fill_n(counts, 8 * Words, 0);
  for (std::size_t begin = 0; begin < count; begin += kIdsPerByte) {
    const std::size_t end = std::min(count, begin + kIdsPerByte);
    std::uint64_t sums[Words] = {};
    for (std::size_t f = begin; f < end; ++f) {
      const std::uint64_t* counters = &table.counters[indices[f] * std::size_t{Words}];
      for (unsigned w = 0; w < Words; ++w) sums[w] += counters[w];
      cost += table.costs[indices[f]];
    }
    for (unsigned w = 0; w < Words; ++w) {
      for (unsigned b = 0; b < 8; ++b) counts[8 * w + b] += static_cast<std::int32_t>(sums[w] >> (8 * b) & 0xff);
    }
  }
  return cost;
}

// The batch indices of all samples' ids: of a whole batch, or of some of its fields.
struct Samples {
  const BatchIndex* indices;      // sample by sample; repeats within a sample point behind the last id
  const std::uint32_t* distinct;  // [count], distinct ids of each sample in all fields
  std::size_t count;
  std::size_t fields;           // indices of each sample, where they are equally many
  const std::uint32_t* begins;  // [count + 1], where they are not, else null

  std::size_t size(std::size_t sample) const {
    return begins == nullptr ? fields : begins[sample + 1] - begins[sample];
  }
};

Samples all_fields(const PreparedBatch& batch) {
  return {batch.without_repeats(), batch.ids_per_sample.data(), batch.samples, batch.fields,
          batch.begins.empty() ? nullptr : batch.begins.data()};
}

template <unsigned Words, typename Finish>
[[gnu::always_inline]] inline void add_samples(const Samples& samples, const IdTable& table, unsigned workers,
                                               Finish finish, std::int32_t* out) {
  alignas(64) std::int32_t counts[8 * Words];
  const BatchIndex* indices = samples.indices;
  for (std::size_t i = 0; i < samples.count; ++i, out += workers) {
    const std::size_t size = samples.size(i);
    const std::int32_t common = add_ids<Words>(table, indices, size, counts);
    indices += size;
    const auto distinct = static_cast<std::int32_t>(samples.distinct[i]);
    for (unsigned j = 0; j < workers; ++j) out[j] = finish(distinct, counts[j], common, j);
  }
}

// `finish(distinct ids of the sample, count, common cost, worker)` makes one number of the result.
template <typename Finish>
[[gnu::always_inline]] inline void score(const Samples& samples, const IdTable& table, unsigned workers, Finish finish,
                                         std::int32_t* out) {
  switch (table.words) {
    case 1: return add_samples<1>(samples, table, workers, finish, out);
    case 2: return add_samples<2>(samples, table, workers, finish, out);
    case 4: return add_samples<4>(samples, table, workers, finish, out);
    default: return add_samples<kMaxWorkers / 8>(samples, table, workers, finish, out);
  }
}

struct ToCost {
  const std::int32_t* link_costs;
  std::int32_t moves;  // of a row that the worker does not have at hand
  [[gnu::always_inline]] std::int32_t operator()(std::int32_t distinct, std::int32_t count, std::int32_t common,
                                                 unsigned worker) const {
    return (moves * distinct - count) * link_costs[worker] + common;
  }
};

struct ToCount {
  [[gnu::always_inline]] std::int32_t operator()(std::int32_t, std::int32_t count, std::int32_t, unsigned) const {
    return count;
  }
};

ESD_HOT void score_costs(const Samples& samples, const IdTable& table, unsigned workers, ToCost finish,
                         std::int32_t* out) {
  score(samples, table, workers, finish, out);
}

ESD_HOT void score_counts(const Samples& samples, const IdTable& table, unsigned workers, std::int32_t* out) {
  score(samples, table, workers, ToCount{}, out);
}

// Whatever its kind, the row's holders cache copies that are latest or took part in its last training.
IdTable table_of(const PreparedBatch& batch, unsigned workers, AtHand at_hand) {
  IdTable table(batch.distinct(), workers);
  if (at_hand == AtHand::kTrained) {
    for (std::size_t x = 0; x < batch.distinct(); ++x) table.set(x, batch.states[x].holders, 1, 0);
  } else {
    for (std::size_t x = 0; x < batch.distinct(); ++x) table.set(x, batch.states[x].latest(), 1, 0);
  }
  return table;
}

// Where rows differ in size, the results are plain sums of what each id adds to its samples at each worker. The entry
// behind the last id is all zero.
class SizedTable {
 public:
  SizedTable(std::size_t distinct, unsigned workers) : workers_(workers), values_((distinct + 1) * workers) {}

  std::int32_t* of(std::size_t x) { return &values_[x * workers_]; }

  void add_up(const PreparedBatch& batch, std::int32_t* out) const {
    const BatchIndex* indices = batch.without_repeats();
    for (std::size_t i = 0; i < batch.samples; ++i, out += workers_) {
      std::fill_n(out, workers_, 0);
      for (const BatchIndex* const end = batch.without_repeats() + batch.begin(i + 1); indices < end;) {
        const std::int32_t* entry = &values_[*indices++ * std::size_t{workers_}];
        for (unsigned j = 0; j < workers_; ++j) out[j] += entry[j];
      }
    }
  }

 private:
  unsigned workers_;
  std::vector<std::int32_t> values_;  // [distinct + 1, workers]
};

// The functions for rows of unequal size are not inlined, since that slowed their callers down by a third (measured).
[[gnu::noinline]] void sized_costs(const PreparedBatch& batch, unsigned workers, const std::int32_t* link_costs,
                                   bool pushed_next, std::int32_t* out) {
  SizedTable table(batch.distinct(), workers);
  for (std::size_t x = 0; x < batch.distinct(); ++x) {
    const RowState& row = batch.states[x];
    const std::int32_t push = row.kind == kOwned ? link_costs[row.holders.first()] : 0;
    const auto size = static_cast<std::int32_t>(batch.size(x));
    for (unsigned j = 0; j < workers; ++j) {
      const std::int32_t before = row.latest().contains(j) ? 0 : link_costs[j] + push;
      table.of(x)[j] = size * (before + (pushed_next ? link_costs[j] : 0));
    }
  }
  table.add_up(batch, out);
}

[[gnu::noinline]] void sized_room_needed(const PreparedBatch& batch, const CopyDirectory& directory, unsigned workers,
                                         std::int32_t* out) {
  SizedTable table(batch.distinct(), workers);
  for (std::size_t x = 0; x < batch.distinct(); ++x) {
    const WorkerSet cached = directory.cached(batch.states[x]);
    for (unsigned j = 0; j < workers; ++j) {
      if (!cached.contains(j)) table.of(x)[j] = static_cast<std::int32_t>(batch.size(x));
    }
  }
  table.add_up(batch, out);
}

}  // namespace

// A clean id costs T_j everywhere but at its holders. An id owned by h costs T_j + T_h everywhere but at h: T_h is
// common to all workers, and h counts it twice so that both terms vanish there. A push that follows costs T_j.
void expected_costs(const PreparedBatch& batch, unsigned workers, const std::int32_t* link_costs, bool pushed_next,
                    std::int32_t* out) {
  if (!batch.sizes.empty()) return sized_costs(batch, workers, link_costs, pushed_next, out);
  IdTable table(batch.distinct(), workers);
  for (std::size_t x = 0; x < batch.distinct(); ++x) {
    const RowState& row = batch.states[x];
    const bool owned = row.kind == kOwned;  // in arithmetic below: it can hardly be predicted
    const std::int32_t push = link_costs[row.holders.first_or_0()] & -std::int32_t{owned};
    table.set(x, row.latest(), 1u + owned, push);
  }
  score_costs(all_fields(batch), table, workers, ToCost{link_costs, 1 + pushed_next}, out);
}

void affinities(const PreparedBatch& batch, unsigned workers, AtHand at_hand, std::int32_t* out) {
  score_counts(all_fields(batch), table_of(batch, workers, at_hand), workers, out);
}

void affinities(const PreparedBatch& batch, unsigned workers, AtHand at_hand, const std::vector<std::uint32_t>& fields,
                std::int32_t* out) {
  std::vector<BatchIndex> indices;
  std::vector<std::uint32_t> begins;
  indices.reserve(batch.samples * fields.size());
  for (std::size_t i = 0; i < batch.samples; ++i) {
    const BatchIndex* const sample = batch.without_repeats() + batch.begin(i);
    if (batch.lengths.empty()) {
      for (const std::uint32_t field : fields) indices.push_back(sample[field]);
      continue;
    }
    const std::uint32_t* const lengths = &batch.lengths[i * batch.fields];
    begins.push_back(static_cast<std::uint32_t>(indices.size()));
    for (const std::uint32_t field : fields) {
      const BatchIndex* const begin = std::accumulate(lengths, lengths + field, sample);
      indices.insert(indices.end(), begin, begin + lengths[field]);
    }
  }
  begins.push_back(static_cast<std::uint32_t>(indices.size()));
  const Samples chosen{indices.data(), batch.ids_per_sample.data(), batch.samples, fields.size(),
                       batch.lengths.empty() ? nullptr : begins.data()};
  score_counts(chosen, table_of(batch, workers, at_hand), workers, out);
}

void room_needed(const PreparedBatch& batch, const CopyDirectory& directory, unsigned workers, std::int32_t* out) {
  if (!batch.sizes.empty()) return sized_room_needed(batch, directory, workers, out);
  IdTable table(batch.distinct(), workers);
  for (std::size_t x = 0; x < batch.distinct(); ++x) table.set(x, directory.cached(batch.states[x]), 1, 0);
  const std::vector<std::int32_t> one_each(workers, 1);
  score_costs(all_fields(batch), table, workers, ToCost{one_each.data(), 1}, out);
}

}  // namespace esd
