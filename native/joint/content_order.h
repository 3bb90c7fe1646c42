// The samples of a batch in an order that depends on what they contain, not on where they stand.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/mix64.h"
#include "engine/batch.h"

namespace esd {

// Places of the first `samples` [samples], by a hash of their ids. Samples with the same ids keep their order.
inline std::vector<std::uint32_t> content_order(const PreparedBatch& batch, std::size_t samples) {
  std::vector<std::pair<std::uint64_t, std::uint32_t>> keys(samples);
  const std::uint32_t* numbers = batch.numbers.data();  // ranks of the ids, the same wherever a sample stands
  for (std::uint32_t i = 0; i < samples; ++i) {
    std::uint64_t key = 0;
    for (std::size_t f = 0; f < batch.fields; ++f) key = mix64(key ^ *numbers++);
    keys[i] = {key, i};
  }
  std::sort(keys.begin(), keys.end());
  std::vector<std::uint32_t> order(samples);
  for (std::size_t i = 0; i < samples; ++i) order[i] = keys[i].second;
  return order;
}

}  // namespace esd
