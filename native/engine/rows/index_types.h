// The numbers by which the engine names things. They are plain integers, so that they index arrays; their names tell
// which arrays.
#pragma once

#include <cstdint>
#include <vector>

namespace esd {

using SampleIndex = std::uint32_t;  // of a sample in its batch
using BatchIndex = std::uint32_t;   // of a distinct id in a prepared batch; ids ascend
using RowNumber = std::uint32_t;    // of a row in the state index, as long as the row stays in the table
using SlotIndex = std::uint32_t;    // of a slot in one worker's cache

using TableNumber = std::uint8_t;  // of a table of the job

using Slots = std::vector<SlotIndex>;

// The number of an id's table in a job with several (services/domain/ids.py).
inline std::size_t table_in(std::uint64_t id) { return id >> 56; }

constexpr RowNumber kNoRow = 0xffffffffu;
constexpr SlotIndex kNoSlot = 0xffffffffu;

}  // namespace esd
