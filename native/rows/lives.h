// Versions of rows that may have several lives (services/domain/versions.py): life * 2^30 + trainings in that life.
#pragma once

#include <cstdint>

namespace esd::rows {

inline std::int64_t trainings_of(std::int64_t version) { return version & ((std::int64_t{1} << 30) - 1); }

}  // namespace esd::rows
