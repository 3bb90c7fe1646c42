// A batch together with its lookahead, the batches that follow it: who trains the batch's rows next.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "common/workers.h"
#include "engine/batch/prepared_batch.h"
#include "engine/rows/index_types.h"

namespace esd {

class Lookahead {
 public:
  // `sizes` are the numbers of samples of the batches that follow; their samples are the last ones of `batch`.
  Lookahead(const PreparedBatch& batch, const std::vector<std::uint32_t>& sizes)
      : batch_(batch),
        sizes_(sizes),
        samples_(batch.samples - std::accumulate(sizes.begin(), sizes.end(), std::size_t{0})) {}

  std::size_t samples() const { return samples_; }  // of the batch at hand

  // The workers' capacities in all batches together, [workers]: in proportion to those `at_hand`, by largest remainder.
  std::vector<std::int32_t> capacities(const std::int32_t* at_hand, unsigned workers) const {
    std::vector<std::int32_t> whole(workers);
    std::vector<unsigned> order(workers);
    std::vector<std::size_t> remainder(workers);
    auto left = static_cast<std::int32_t>(batch_.samples);
    for (unsigned j = 0; j < workers; ++j) {
      const std::size_t share = static_cast<std::size_t>(at_hand[j]) * batch_.samples;
      whole[j] = static_cast<std::int32_t>(share / samples_);
      remainder[j] = share % samples_;
      left -= whole[j];
    }
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](unsigned a, unsigned b) { return remainder[a] > remainder[b]; });
    for (std::int32_t r = 0; r < left; ++r) ++whole[order[static_cast<std::size_t>(r)]];
    return whole;
  }

  // The workers that train each row, [distinct], in the first batch of the lookahead that uses it; none if none does.
  std::vector<WorkerSet> next_trainers(const std::vector<std::int32_t>& assignment) const {
    std::vector<WorkerSet> next(batch_.distinct());
    std::vector<std::uint32_t> used_in(batch_.distinct());  // that batch, counted from 1; 0 as long as there is none
    std::size_t sample = samples_;
    for (std::uint32_t b = 1; b <= sizes_.size(); ++b) {
      for (const std::size_t end = sample + sizes_[b - 1]; sample < end; ++sample) {
        const int worker = assignment[sample];
        for (std::size_t at = batch_.begin(sample); at < batch_.begin(sample + 1); ++at) {
          const BatchIndex x = batch_.indices[at];
          if (used_in[x] == 0) used_in[x] = b;
          if (used_in[x] == b) next[x].add(worker);
        }
      }
    }
    return next;
  }

 private:
  const PreparedBatch& batch_;
  const std::vector<std::uint32_t>& sizes_;
  const std::size_t samples_;
};

}  // namespace esd
