// Scores of batches whose rows differ in size: plain sums, where scores.cpp counts rows.
#include <vector>

#include "engine/scores.h"

namespace esd {
namespace {

// What each id adds to its samples at each worker; the row behind the last number is all zero.
class Entries {
 public:
  Entries(std::size_t distinct, unsigned workers) : workers_(workers), values_((distinct + 1) * workers) {}

  std::int32_t* of(std::size_t number) { return &values_[number * workers_]; }

  void add_up(const PreparedBatch& batch, std::int32_t* out) const {
    const std::uint32_t* numbers = batch.numbers_once();
    for (std::size_t i = 0; i < batch.samples; ++i, out += workers_) {
      std::fill_n(out, workers_, 0);
      for (std::size_t f = 0; f < batch.fields; ++f) {
        const std::int32_t* entry = &values_[*numbers++ * std::size_t{workers_}];
        for (unsigned j = 0; j < workers_; ++j) out[j] += entry[j];
      }
    }
  }

 private:
  unsigned workers_;
  std::vector<std::int32_t> values_;  // [distinct + 1, workers]
};

}  // namespace

void sized_costs(const PreparedBatch& batch, unsigned workers, const std::int32_t* link_costs, std::int32_t* out) {
  Entries entries(batch.distinct(), workers);
  for (std::size_t x = 0; x < batch.distinct(); ++x) {
    const RowState& row = batch.states[x];
    const std::int32_t push = row.kind == kOwned ? link_costs[__builtin_ctzll(row.mask)] : 0;
    const auto size = static_cast<std::int32_t>(batch.size(x));
    for (unsigned j = 0; j < workers; ++j) {
      if (!(row.latest() & worker_bit(j))) entries.of(x)[j] = size * (link_costs[j] + push);
    }
  }
  entries.add_up(batch, out);
}

void sized_room_needed(const PreparedBatch& batch, const CopyDirectory& directory, unsigned workers,
                       std::int32_t* out) {
  Entries entries(batch.distinct(), workers);
  for (std::size_t x = 0; x < batch.distinct(); ++x) {
    const WorkerMask cached = directory.cached(batch.states[x]);
    for (unsigned j = 0; j < workers; ++j) {
      if (!(cached & worker_bit(j))) entries.of(x)[j] = static_cast<std::int32_t>(batch.size(x));
    }
  }
  entries.add_up(batch, out);
}

}  // namespace esd
