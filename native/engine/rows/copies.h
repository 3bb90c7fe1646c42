// One worker's cached copies, by slot.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/memory/huge_pages.h"

namespace esd {

constexpr std::uint32_t kNone = 0xffffffffu;

struct Copy {
  std::uint32_t row;        // row number in the state index
  std::uint32_t stamp;      // when it came to its present place in the policy's order, or left the former one
  std::uint32_t mark;       // Emark's
  std::uint16_t frequency;  // iterations that used the copy since it was cached
  std::uint16_t outdated;   // 1: lacks the latest value, or will when the iteration ends, and owes no push
};
static_assert(sizeof(Copy) == 16);

using Copies = HugeVector<Copy>;  // by slot
using Slots = std::vector<std::uint32_t>;

// A copy changes its place at most twice in an iteration: outdated, then used.
inline std::uint32_t outdate_stamp(std::uint32_t iteration) { return 2 * iteration; }
inline std::uint32_t use_stamp(std::uint32_t iteration) { return 2 * iteration + 1; }

constexpr std::uint16_t kMaxFrequency = 1023;  // counted no further

inline std::uint16_t next_frequency(std::uint16_t frequency) {
  return std::min<std::uint16_t>(frequency + 1, kMaxFrequency);
}

}  // namespace esd
