// A batch together with those that follow it: who trains the batch's rows next.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "engine/batch/prepared_batch.h"

namespace esd {

class JointWindow {
 public:
  // `following`: samples of each batch that follows, the last ones of `batch`.
  JointWindow(const PreparedBatch& batch, const std::vector<std::uint32_t>& following)
      : batch_(batch),
        following_(following),
        samples_(batch.samples - std::accumulate(following.begin(), following.end(), std::size_t{0})) {}

  std::size_t samples() const { return samples_; }  // of the batch at hand

  // Of the whole window, [workers]: in proportion to those of the batch at hand, by largest remainder.
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

  // Of each row [distinct]: the workers that train it in the first of the following batches that uses it, 0 if none does.
  std::vector<WorkerMask> next_trainers(const std::vector<std::int32_t>& assignment) const {
    std::vector<WorkerMask> next(batch_.distinct());
    std::vector<std::uint32_t> used_in(batch_.distinct());  // that batch, counted from 1
    std::size_t sample = samples_;
    for (std::uint32_t b = 1; b <= following_.size(); ++b) {
      for (const std::size_t end = sample + following_[b - 1]; sample < end; ++sample) {
        const WorkerMask worker = worker_bit(static_cast<unsigned>(assignment[sample]));
        const std::uint32_t* numbers = batch_.numbers.data() + sample * batch_.fields;
        for (std::size_t f = 0; f < batch_.fields; ++f) {
          const std::uint32_t x = numbers[f];
          if (used_in[x] == 0) used_in[x] = b;
          if (used_in[x] == b) next[x] |= worker;
        }
      }
    }
    return next;
  }

 private:
  const PreparedBatch& batch_;
  const std::vector<std::uint32_t>& following_;
  const std::size_t samples_;
};

}  // namespace esd
