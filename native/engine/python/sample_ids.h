// The ids of samples as Python gives them: [k, F], or [N] and their lengths [k, F].
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <mutex>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "common/arrays.h"
#include "engine/batch/batch_ids.h"

namespace esd {

using Ids = nanobind::ndarray<const std::uint64_t, nanobind::c_contig, nanobind::device::cpu>;
using Lengths = In2<std::uint32_t>;

// Throws std::invalid_argument when the arrays do not fit each other.
inline SampleIds sample_ids(const Ids& ids, const std::optional<Lengths>& lengths) {
  if (ids.size() > 0xffffffffu) throw std::invalid_argument("ids has 2^32 elements or more");
  if (ids.ndim() != (lengths ? 1u : 2u)) {
    throw std::invalid_argument(std::string("ids has ") + std::to_string(ids.ndim()) +
                                " axes, there must be two, or one beside lengths");
  }
  if (!lengths) return {ids.data(), ids.shape(0), ids.shape(1), nullptr};
  const std::uint64_t count = std::accumulate(lengths->data(), lengths->data() + lengths->size(), std::uint64_t{0});
  if (count != ids.size()) {
    throw std::invalid_argument("lengths sum to " + std::to_string(count) + ", there are " +
                                std::to_string(ids.size()) + " ids");
  }
  return {ids.data(), lengths->shape(0), lengths->shape(1), lengths->data()};
}

// The ids of a batch for several engines, of which the first that asks finds out which are the same.
class SharedBatchIds {
 public:
  // Throws what `sample_ids` does. The arrays must stay as they are.
  SharedBatchIds(Ids ids, std::optional<Lengths> lengths)
      : ids_(std::move(ids)), lengths_(std::move(lengths)), given_(sample_ids(ids_, lengths_)) {}

  const BatchIds& found() {
    thread_local IdFinder finder;
    std::call_once(once_, [this] { finder.find(given_, found_); });
    return found_;
  }

 private:
  const Ids ids_;
  const std::optional<Lengths> lengths_;
  const SampleIds given_;
  std::once_flag once_;
  BatchIds found_;
};

}  // namespace esd
