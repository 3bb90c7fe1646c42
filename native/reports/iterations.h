// What workers report of their iterations, read out of a message (protos/dispatcher.proto, AttendRequest).
//
// Only what a worker writes that has nothing else to say is read here, and only values that may stand there. Whatever is
// unusual raises std::invalid_argument, and is left to who can say what is wrong: fields that are unknown, that come twice
// or in another form, numbers out of range, no samples, anything beside the reports.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "wire/protobuf.h"

namespace esd::reports {

// What one iteration or flush can have taken, moved and seen (services/domain/reports.py).
struct Limits {
  double most_seconds, least_bandwidth, most_bandwidth;
  std::uint64_t most_moved;
  std::uint8_t most_label;
};

struct Bytes {
  const std::uint8_t* data = nullptr;
  std::size_t size = 0;
};

// The fields of an IterationReport. Columns lie in the message.
struct Iteration {
  std::uint64_t epoch = 0, iteration = 0, labels_per_sample = 1;
  double loss_sum = 0, seconds = 0, bandwidth = 0;
  Bytes bins, labels, groups;
  std::array<std::uint64_t, 9> transfers{};
  std::array<double, 6> phases{};
  std::vector<double> label_loss_sums;
};

class Reading {
 public:
  explicit Reading(const Limits& limits) : limits_(limits) {}

  // All reports of a message, in order; at least one.
  std::vector<Iteration> message(Bytes data) const {
    std::vector<Iteration> found;
    for (wire::Reader reader(data.data, data.size); !reader.done();) {
      const wire::Reader::Field field = reader.next();
      if (field.number == 1 && field.type == wire::WireType::kVarint) continue;  // the sequence
      expect(field.number == 4);
      found.push_back(iteration(bytes_of(data, field)));
    }
    expect(!found.empty());
    return found;
  }

 private:
  static void expect(bool usual) {
    if (!usual) throw std::invalid_argument("a report that is out of the ordinary");
  }

  // Calls `take` with each field, none of which comes twice.
  template <typename Take>
  static void each_field(Bytes data, Take take) {
    std::uint64_t seen = 0;
    for (wire::Reader reader(data.data, data.size); !reader.done();) {
      const wire::Reader::Field field = reader.next();
      expect(field.number < 64 && (seen >> field.number & 1) == 0);
      seen |= std::uint64_t{1} << field.number;
      take(field);
    }
  }

  Iteration iteration(Bytes data) const {
    Iteration report;
    each_field(data, [&](const wire::Reader::Field& field) {
      switch (field.number) {
        case 1: report.epoch = number_of(field); break;
        case 2: report.iteration = number_of(field); break;
        case 3: report.loss_sum = double_of(data, field); break;
        case 4: report.bins = bytes_of(data, field); break;
        case 5: report.labels = bytes_of(data, field); break;
        case 6: report.transfers = transfers(bytes_of(data, field)); break;
        case 7: report.phases = phases(bytes_of(data, field)); break;
        case 8: report.seconds = seconds_of(data, field); break;
        case 9: report.bandwidth = double_of(data, field); break;
        case 10: report.labels_per_sample = number_of(field); break;
        case 11: report.groups = bytes_of(data, field); break;
        case 12: report.label_loss_sums = doubles(bytes_of(data, field)); break;
        default: expect(false);
      }
    });
    check(report);
    return report;
  }

  void check(const Iteration& report) const {
    const std::size_t values = report.labels.size, labels = report.labels_per_sample;
    expect(1 <= labels && labels <= values && values % labels == 0 && report.bins.size == 2 * values);
    expect(report.groups.size == 0 || report.groups.size == 8 * (values / labels));
    expect(report.label_loss_sums.size() == (labels == 1 ? 0 : labels));
    std::uint8_t most = 0;
    for (std::size_t i = 0; i < values; ++i) most = most < report.labels.data[i] ? report.labels.data[i] : most;
    expect(most <= limits_.most_label);
    bool finite = std::isfinite(report.loss_sum);
    for (const double sum : report.label_loss_sums) finite &= std::isfinite(sum);
    expect(finite);
    expect(report.bandwidth == 0 ||
           (limits_.least_bandwidth <= report.bandwidth && report.bandwidth <= limits_.most_bandwidth));
  }

  std::array<std::uint64_t, 9> transfers(Bytes data) const {
    std::array<std::uint64_t, 9> counts{};
    each_field(data, [&](const wire::Reader::Field& field) {
      expect(field.number <= counts.size());
      counts[field.number - 1] = number_of(field);
      expect(counts[field.number - 1] <= limits_.most_moved);
    });
    return counts;
  }

  std::array<double, 6> phases(Bytes data) const {
    std::array<double, 6> times{};
    each_field(data, [&](const wire::Reader::Field& field) {
      expect(field.number <= times.size());
      times[field.number - 1] = seconds_of(data, field);
    });
    return times;
  }

  static std::vector<double> doubles(Bytes data) {
    expect(data.size % sizeof(double) == 0);
    std::vector<double> values(data.size / sizeof(double));
    if (data.size > 0) std::memcpy(values.data(), data.data, data.size);
    return values;
  }

  static std::uint64_t number_of(const wire::Reader::Field& field) {
    expect(field.type == wire::WireType::kVarint);
    return field.value;
  }

  static double double_of(Bytes data, const wire::Reader::Field& field) {
    expect(field.type == wire::WireType::kFixed64);
    double value;
    std::memcpy(&value, data.data + field.offset, sizeof value);
    return value;
  }

  double seconds_of(Bytes data, const wire::Reader::Field& field) const {
    const double value = double_of(data, field);
    expect(0 <= value && value <= limits_.most_seconds);
    return value;
  }

  static Bytes bytes_of(Bytes data, const wire::Reader::Field& field) {
    expect(field.type == wire::WireType::kBytes);
    return {data.data + field.offset, field.size};
  }

  Limits limits_;
};

}  // namespace esd::reports
