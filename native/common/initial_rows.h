// The initial values of rows: a pure function of (seed, id), so that every server and worker computes the same.
// protos/common.proto has the formula, for programs in other languages.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/hot.h"
#include "common/mix64.h"

namespace esd {

inline constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15ULL;

struct InitialRows {
  std::uint64_t seed;
  double scale;           // Values are uniform in [-scale, scale).
  std::size_t dimension;  // D, the values of a row
  std::size_t width;      // W, with the optimizer state, which starts at zero

  // Writes the initial row of `id` to `row` [width].
  void fill(std::uint64_t id, float* row) const {
    const std::uint64_t stream = mix64(id ^ mix64(seed + kGolden));
    for (std::size_t c = 0; c < dimension; ++c) {
      const std::uint64_t h = mix64(stream + (c + 1) * kGolden);
      const double u = static_cast<double>(h >> 40) * 0x1p-24;
      row[c] = static_cast<float>((2.0 * u - 1.0) * scale);
    }
    for (std::size_t c = dimension; c < width; ++c) row[c] = 0.0f;
  }
};

ESD_HOT static void fill_initial(const InitialRows& initial, std::uint64_t id, float* row) { initial.fill(id, row); }

}  // namespace esd
