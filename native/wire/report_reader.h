// The reader of a worker's reports of iterations (protos/dispatcher.proto, AttendRequest). Protobuf writes them
// (services/wire/reports.py).
//
// It takes a message that has reports and nothing else, with possible values only, and throws std::invalid_argument for
// any other: a number out of range, no samples, another kind of content.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "wire/fields.h"

namespace esd::wire {

// The bounds on one iteration's figures (services/domain/reports.py).
struct ReportLimits {
  double most_seconds, least_bandwidth, most_bandwidth, most_drift;
  std::uint64_t most_moved;
  std::uint8_t most_label;
};

using Transfers = std::array<std::uint64_t, 22>;  // the fields of a TransferCounts

// The fields of an IterationReport. Columns lie in the message.
struct ReadReport {
  std::uint64_t epoch = 0, iteration = 0, labels_per_sample = 1;
  double loss_sum = 0, seconds = 0, bandwidth = 0, drift = 0;
  Bytes bins, labels, groups;
  Transfers transfers{};
  std::array<double, 6> phases{};
  std::vector<double> label_loss_sums;
};

class ReportReader {
 public:
  explicit ReportReader(const ReportLimits& limits) : limits_(limits) {}

  // All reports of a message, in order; at least one.
  std::vector<ReadReport> read(Bytes message) const {
    constexpr std::uint32_t kSequence = 1, kReport = 4;
    std::vector<ReadReport> reports;
    for (Reader reader(message.data, message.size); !reader.done();) {
      const Reader::Field field = reader.next();
      if (field.number == kSequence && field.type == WireType::kVarint) continue;
      expect(field.number == kReport && field.type == WireType::kBytes);
      reports.push_back(read_report({message.data + field.offset, field.size}));
    }
    expect(!reports.empty());
    return reports;
  }

 private:
  ReadReport read_report(Bytes message) const {
    const Fields<14> fields(message);
    ReadReport report;
    report.epoch = fields.varint(1);
    report.iteration = fields.varint(2);
    report.loss_sum = fields.float64(3);
    report.bins = fields.bytes(4);
    report.labels = fields.bytes(5);
    report.transfers = read_transfers(fields.bytes(6));
    report.phases = read_phases(fields.bytes(7));
    report.seconds = checked_seconds(fields.float64(8));
    report.bandwidth = fields.float64(9);
    if (fields.has(10)) report.labels_per_sample = fields.varint(10);
    report.groups = fields.bytes(11);
    report.label_loss_sums = read_doubles(fields.bytes(12));
    report.drift = fields.float64(13);
    check(report);
    return report;
  }

  void check(const ReadReport& report) const {
    const std::size_t values = report.labels.size, labels = report.labels_per_sample;
    expect(1 <= labels && labels <= values && values % labels == 0 && report.bins.size == 2 * values);
    expect(report.groups.size == 0 || report.groups.size == 8 * (values / labels));
    expect(report.label_loss_sums.size() == (labels == 1 ? 0 : labels));
    expect(*std::max_element(report.labels.data, report.labels.data + values) <= limits_.most_label);
    bool finite = std::isfinite(report.loss_sum);
    for (const double sum : report.label_loss_sums) finite &= std::isfinite(sum);
    expect(finite);
    expect(report.bandwidth == 0 ||
           (limits_.least_bandwidth <= report.bandwidth && report.bandwidth <= limits_.most_bandwidth));
    expect(0 <= report.drift && report.drift <= limits_.most_drift);
  }

  Transfers read_transfers(Bytes message) const {
    Transfers counts{};
    const Fields<counts.size() + 1> fields(message);
    for (std::uint32_t i = 0; i < counts.size(); ++i) counts[i] = fields.varint(i + 1, limits_.most_moved);
    return counts;
  }

  std::array<double, 6> read_phases(Bytes message) const {
    std::array<double, 6> times{};
    const Fields<times.size() + 1> fields(message);
    for (std::uint32_t i = 0; i < times.size(); ++i) times[i] = checked_seconds(fields.float64(i + 1));
    return times;
  }

  static std::vector<double> read_doubles(Bytes bytes) {
    expect(bytes.size % sizeof(double) == 0);
    return bytes.column<double>();
  }

  double checked_seconds(double value) const {
    expect(0 <= value && value <= limits_.most_seconds);
    return value;
  }

  ReportLimits limits_;
};

}  // namespace esd::wire
