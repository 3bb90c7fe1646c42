// How likely a row is to be trained again, learned from the stream: by how often it has been trained so far.
#pragma once

#include <algorithm>
#include <cstdint>

namespace esd {

class ReuseStatistics {
 public:
  static constexpr std::uint32_t kClasses = 16;  // class c: rows trained c times; the last class: that often or more
  static constexpr std::uint32_t kCertain = 0;   // the class of rows that will be trained again for sure

  static std::uint32_t class_of(std::uint32_t trainings) { return std::min(trainings, kClasses - 1); }

  // Notes that a row that was trained `trainings` times is trained once more.
  void train(std::uint32_t trainings) { ++reached_[std::min(trainings + 1, kClasses)]; }

  // The probability that a row of class c, 1..15, is trained again: the share of such rows that were.
  double probability(std::uint32_t c) const {
    const bool last = c == kClasses - 1;
    const std::uint64_t uses = last ? reached_[c] + reached_[c + 1] : reached_[c];
    return (static_cast<double>(reached_[c + 1]) + 0.5) / (static_cast<double>(uses) + 1.0);
  }

 private:
  // [v], v < 16: rows that have been trained v times or more. [16]: trainings of rows beyond their 15th.
  std::uint64_t reached_[kClasses + 1] = {};
};

}  // namespace esd
