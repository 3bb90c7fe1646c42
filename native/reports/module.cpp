// The Python module esd.native.reports, whose interface is documented in esd/native/reports.pyi: what the dispatcher reads
// of its workers.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "common/arrays.h"
#include "reports/iterations.h"
#include "reports/score_counts.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace esd::reports {
namespace {

nb::object number(std::uint64_t value) { return nb::steal(PyLong_FromUnsignedLongLong(value)); }
nb::object number(double value) { return nb::steal(PyFloat_FromDouble(value)); }

template <typename Values>
nb::object tuple_of(const Values& values) {
  nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(values.size())));
  for (std::size_t i = 0; i < values.size(); ++i) {
    PyTuple_SET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i), number(values[i]).release().ptr());
  }
  return tuple;
}

nb::object read_iterations(const nb::bytes& message, double most_seconds, double least_bandwidth, double most_bandwidth,
                           std::uint64_t most_moved, std::uint8_t most_label) {
  const Reading reading({most_seconds, least_bandwidth, most_bandwidth, most_moved, most_label});
  const auto* const data = reinterpret_cast<const std::uint8_t*>(message.c_str());
  std::vector<Iteration> reports;
  try {
    reports = reading.message({data, message.size()});
  } catch (const std::invalid_argument&) {
    return nb::none();
  }
  nb::list found;
  for (const Iteration& report : reports) {
    const auto offset = [&](Bytes column) { return column.size == 0 ? 0 : column.data - data; };
    found.append(nb::make_tuple(report.iteration, report.epoch, report.loss_sum, report.seconds, report.bandwidth,
                                tuple_of(report.transfers), tuple_of(report.phases), tuple_of(report.label_loss_sums),
                                report.labels.size, report.labels_per_sample, offset(report.bins),
                                offset(report.labels), offset(report.groups)));
  }
  return found;
}

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
}  // namespace esd::reports

NB_MODULE(reports, module) {
  using namespace esd::reports;
  module.doc() = "Reports of workers. See reports.pyi.";
  module.def("read_iterations", &read_iterations, "message"_a, "most_seconds"_a, "least_bandwidth"_a,
             "most_bandwidth"_a, "most_moved"_a, "most_label"_a);
  module.def("count_scores", &count_scores, "counts"_a.noconvert(), "used"_a.noconvert(), "bins"_a.noconvert(),
             "labels"_a.noconvert(), "by"_a);
}
