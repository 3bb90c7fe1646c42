// Columns of sets of workers, as plans and frames have them: one word of each set, or in a job of more than 64 workers two
// words, the lower one first.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/workers.h"

namespace esd {

__extension__ using WideBits = unsigned __int128;
using WideWorkerSet = WorkerSetOf<WideBits>;
constexpr unsigned kMostWorkers = 8 * sizeof(WideBits);

struct WorkerSets {
  const std::uint64_t* data;
  std::size_t size;   // sets
  std::size_t words;  // of each set, 1 or 2

  WideWorkerSet operator[](std::size_t i) const {
    if (words == 1) return {data[i]};
    return {data[2 * i] | WideBits{data[2 * i + 1]} << 64};
  }
};

}  // namespace esd
