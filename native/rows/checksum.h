// A checksum of one row, by which a store detects a row that has changed since it was written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/mix64.h"

namespace esd::rows {

// Covers the id, the version and the bits of the row's floats [width]: it detects a flipped bit, and a row that is
// stored under another row's id.
inline std::uint32_t row_checksum(std::uint64_t id, std::int64_t version, const float* row, std::size_t width) {
  constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15ULL;  // It is odd, so that multiplying loses nothing.
  std::uint64_t sum = mix64(id ^ mix64(static_cast<std::uint64_t>(version)));
  std::size_t c = 0;
  for (; c + 2 <= width; c += 2) {
    std::uint64_t word;
    std::memcpy(&word, row + c, sizeof word);
    sum = (sum ^ word) * kFactor;
    sum ^= sum >> 32;
  }
  if (c < width) {
    std::uint32_t word;
    std::memcpy(&word, row + c, sizeof word);
    sum = (sum ^ word) * kFactor;
  }
  return static_cast<std::uint32_t>(mix64(sum));
}

}  // namespace esd::rows
