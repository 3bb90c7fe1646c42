// Counts of predicted probabilities, by label and score bin.
#pragma once

#include <cstddef>
#include <cstdint>

namespace esd::scores {

// One label of some samples, and the bins of their scores; `stride` values lie from one sample to the next.
struct Scores {
  const std::uint16_t* bins;
  const std::uint8_t* labels;
  std::size_t samples, bins_stride, labels_stride;
};

constexpr std::size_t kScoreBins = 65536;
constexpr std::size_t kClasses = 2;  // a label that is neither 0 nor 1 does not count

// Adds `by` to the count of each sample, [kClasses x kScoreBins], and notes which bins were ever used, [kScoreBins].
inline void count(const Scores& scores, std::int64_t by, std::int64_t* counts, bool* used) {
  for (std::size_t i = 0; i < scores.samples; ++i) {
    const std::size_t label = scores.labels[i * scores.labels_stride], bin = scores.bins[i * scores.bins_stride];
    if (label >= kClasses) continue;
    counts[label * kScoreBins + bin] += by;
    used[bin] = true;
  }
}

}  // namespace esd::scores
