// Checks of a frame's columns before anything is done with them. services/domain/rows.py and ps_server/core/shard.py
// have the same checks, and describe in words what is wrong with a frame that fails here.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "common/hot.h"
#include "common/mix64.h"
#include "rows/row_table.h"
#include "wire/fields.h"

namespace esd::rows {

inline constexpr std::int64_t kMaxVersion = (std::int64_t{1} << 53) - 1;
inline constexpr std::uint64_t kPartitions = 64;

struct ShardShare {
  std::uint64_t index, count;

  bool has(const std::vector<std::uint64_t>& ids) const {
    if (count == 1) return true;
    return std::all_of(ids.begin(), ids.end(),
                       [this](std::uint64_t id) { return mix64(id) % kPartitions % count == index; });
  }
};

inline bool distinct(const std::vector<std::uint64_t>& ids) {
  const auto in_order = [](const std::vector<std::uint64_t>& list) {
    return std::adjacent_find(list.begin(), list.end(), [](auto a, auto b) { return a >= b; }) == list.end();
  };
  if (in_order(ids)) return true;
  std::vector<std::uint64_t> sorted = ids;
  std::sort(sorted.begin(), sorted.end());
  return in_order(sorted);
}

// Whether every version is possible and encodes at least `lowest` trainings.
inline bool versions_between(const std::vector<std::int64_t>& versions, std::int64_t lowest) {
  return std::all_of(versions.begin(), versions.end(), [lowest](std::int64_t version) {
    return version >= 0 && version <= kMaxVersion && trainings_of(version) >= lowest;
  });
}

// Whether the floats in these bytes are neither NaN nor infinite.
ESD_HOT static bool all_finite(const std::uint8_t* data, std::size_t floats) {
  constexpr std::uint32_t kExponent = 0x7f800000;
  std::uint32_t not_finite = 0;
  for (std::size_t i = 0; i < floats; ++i) {
    std::uint32_t bits;
    std::memcpy(&bits, data + i * sizeof bits, sizeof bits);
    not_finite |= static_cast<std::uint32_t>((bits & kExponent) == kExponent);
  }
  return not_finite == 0;
}

// Whether the bytes are `rows` times `width` finite floats.
inline bool are_rows(wire::Bytes bytes, std::size_t rows, std::size_t width) {
  return bytes.size == rows * width * sizeof(float) && all_finite(bytes.data, rows * width);
}

// Whether the bytes are `n` numbers of eight bytes.
inline bool are_numbers(wire::Bytes bytes, std::size_t n) { return bytes.size == 8 * n; }

}  // namespace esd::rows
