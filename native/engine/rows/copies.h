// One worker's cached copies of rows, by slot.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/memory/huge_pages.h"
#include "engine/rows/index_types.h"

namespace esd {

struct Copy {
  RowNumber row;        // kNoRow in a vacant slot
  std::uint32_t stamp;  // when the copy came to its present position in the policy's order, or left the former one
  std::uint32_t mark;   // Emark's mark; of other policies, whether the copy is hot, or how often its row was trained
  std::uint16_t frequency;  // iterations that used the copy since it was cached, up to kMaxFrequency
  std::uint8_t outdated;    // 1: lacks the latest value, or will when the iteration ends, and owes no push
  std::uint8_t table;       // of the row, also in a vacant slot: a slot belongs to one table
};
static_assert(sizeof(Copy) == 16);

using Copies = HugeVector<Copy>;  // by SlotIndex

// A copy changes its position at most twice in an iteration: when it is outdated, then when it is used.
inline std::uint32_t outdate_stamp(std::uint32_t iteration) { return 2 * iteration; }
inline std::uint32_t use_stamp(std::uint32_t iteration) { return 2 * iteration + 1; }
inline std::uint32_t last_use_of(std::uint32_t use_stamp) { return use_stamp / 2; }
constexpr std::uint32_t kNoStamp = 0xffffffffu;  // of no iteration

constexpr std::uint16_t kMaxFrequency = 1023;

inline std::uint16_t next_frequency(std::uint16_t frequency) {
  return std::min<std::uint16_t>(frequency + 1, kMaxFrequency);
}

}  // namespace esd
