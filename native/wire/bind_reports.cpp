// The part of esd.native.wire that is about workers' reports.
#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "wire/module.h"
#include "wire/report_reader.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace esd::wire {
namespace {

nb::object number(std::uint64_t value) { return nb::steal(PyLong_FromUnsignedLongLong(value)); }
nb::object number(double value) { return nb::steal(PyFloat_FromDouble(value)); }

template <typename Values>
nb::object tuple_of(const Values& values) {
  nb::object tuple = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(values.size())));
  for (std::size_t i = 0; i < values.size(); ++i) {
    PyTuple_SetItem(tuple.ptr(), static_cast<Py_ssize_t>(i), number(values[i]).release().ptr());
  }
  return tuple;
}

nb::object read_iterations(const nb::bytes& message, double most_seconds, double least_bandwidth, double most_bandwidth,
                           double most_drift, std::uint64_t most_moved, std::uint8_t most_label) {
  const ReportReader reader({most_seconds, least_bandwidth, most_bandwidth, most_drift, most_moved, most_label});
  const auto* const data = reinterpret_cast<const std::uint8_t*>(message.c_str());
  std::vector<ReadReport> reports;
  try {
    reports = reader.read({data, message.size()});
  } catch (const std::invalid_argument&) {
    return nb::none();
  }
  nb::list found;
  for (const ReadReport& report : reports) {
    const auto offset = [&](Bytes column) { return column.size == 0 ? 0 : column.data - data; };
    found.append(nb::make_tuple(report.iteration, report.epoch, report.loss_sum, report.seconds, report.bandwidth,
                                report.drift, tuple_of(report.transfers), tuple_of(report.phases),
                                tuple_of(report.label_loss_sums), report.labels.size, report.labels_per_sample,
                                offset(report.bins), offset(report.labels), offset(report.groups)));
  }
  return found;
}

}  // namespace

void bind_reports(nb::module_& m) {
  m.def("read_iterations", &read_iterations, "message"_a, "most_seconds"_a, "least_bandwidth"_a, "most_bandwidth"_a,
        "most_drift"_a, "most_moved"_a, "most_label"_a);
}

}  // namespace esd::wire
