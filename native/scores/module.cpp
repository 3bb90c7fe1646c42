// The Python module esd.native.scores, whose interface is documented in esd/native/scores.pyi: scores of samples, counted.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <cstdint>

#include "common/arrays.h"
#include "scores/counts.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace esd::scores {
namespace {

template <typename T>
using Column = nb::ndarray<const T, nb::ndim<1>, nb::device::cpu>;

void count_scores(const InOut1<std::int64_t>& counts, const InOut1<bool>& used, const Column<std::uint16_t>& bins,
                  const Column<std::uint8_t>& labels, std::int64_t by) {
  require(counts.size() == kClasses * kScoreBins && used.size() == kScoreBins, "counts or used have another length");
  require(bins.size() == labels.size(), "bins and labels differ in length");
  const Scores scores{bins.data(), labels.data(), labels.size(), static_cast<std::size_t>(bins.stride(0)),
                      static_cast<std::size_t>(labels.stride(0))};
  count(scores, by, counts.data(), used.data());
}

}  // namespace
}  // namespace esd::scores

NB_MODULE(scores, module) {
  using namespace esd::scores;
  module.doc() = "Scores of samples, counted. See scores.pyi.";
  module.def("count_scores", &count_scores, "counts"_a.noconvert(), "used"_a.noconvert(), "bins"_a.noconvert(),
             "labels"_a.noconvert(), "by"_a);
}
