// The writer of a frame, ExchangeRequest in protos/ps.proto or DeliverRequest in protos/worker.proto: it gathers rows and
// gradients from the table in which they lie. frame_reader.h is the other side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/worker_sets.h"
#include "wire/protobuf.h"

namespace esd::wire {

// The first `width` floats of rows of a table: row i of the frame is row slots[i] of the table, or row i.
struct GatheredFloats {
  const float* table;
  std::size_t stride;  // floats from row to row
  std::size_t width;
  const std::uint32_t* slots;  // may be null

  void write(Writer& writer, std::size_t n) const {
    if (slots == nullptr && stride == width) {
      writer.bytes(table, n * width * sizeof(float));
      return;
    }
    for (std::size_t i = 0; i < n; ++i) {
      writer.bytes(table + (slots != nullptr ? slots[i] : i) * stride, width * sizeof(float));
    }
  }
};

struct RowsToPush {
  std::size_t n;
  const std::uint64_t* ids;
  const std::int64_t* versions;
  GatheredFloats floats;

  std::size_t size() const { return 2 * bytes_field_size(8 * n) + bytes_field_size(n * floats.width * sizeof(float)); }

  void write(Writer& writer) const {
    writer.bytes_field(1, 8 * n);
    writer.bytes(ids, 8 * n);
    writer.bytes_field(2, 8 * n);
    writer.bytes(versions, 8 * n);
    writer.bytes_field(3, n * floats.width * sizeof(float));
    floats.write(writer, n);
  }
};

struct GradientsToPush {
  std::size_t n;
  const std::uint64_t* ids;
  const std::int64_t* targets;
  WorkerSets contributors;
  const std::uint32_t* steps;
  const float* rates;
  GatheredFloats floats;
  unsigned worker;

  std::size_t size() const {
    return 2 * bytes_field_size(8 * n) + bytes_field_size(8 * n * contributors.words) + 2 * bytes_field_size(4 * n) +
           bytes_field_size(n * floats.width * sizeof(float)) + varint_field_size(worker);
  }

  void write(Writer& writer) const {
    writer.bytes_field(1, 8 * n);
    writer.bytes(ids, 8 * n);
    writer.bytes_field(2, 8 * n);
    writer.bytes(targets, 8 * n);
    writer.bytes_field(3, 8 * n * contributors.words);
    writer.bytes(contributors.data, 8 * n * contributors.words);
    writer.bytes_field(4, 4 * n);
    writer.bytes(steps, 4 * n);
    writer.bytes_field(5, n * floats.width * sizeof(float));
    floats.write(writer, n);
    writer.varint_field(6, worker);
    writer.bytes_field(7, 4 * n);
    writer.bytes(rates, 4 * n);
  }
};

struct RowsToPull {
  std::size_t n;
  const std::uint64_t* ids;
  const std::int64_t* versions;
  std::size_t stateless;  // number of rows at the end that come without their optimizer state

  std::size_t size() const { return 2 * bytes_field_size(8 * n) + (stateless ? varint_field_size(stateless) : 0); }

  void write(Writer& writer) const {
    writer.bytes_field(1, 8 * n);
    writer.bytes(ids, 8 * n);
    writer.bytes_field(2, 8 * n);
    writer.bytes(versions, 8 * n);
    if (stateless) writer.varint_field(3, stateless);
  }
};

// The parts follow each other: head, pushes, pulls. An empty part is left out.
struct FrameWriter {
  std::uint64_t sequence;
  std::string_view table;
  std::uint64_t epoch;
  std::uint32_t wait_ms;
  std::uint64_t iteration;  // that trains the rows at another worker; 0 in a frame for a parameter server
  RowsToPush rows;
  GradientsToPush gradients;
  RowsToPull pulls;
  std::string_view trace_parent;  // empty unless the iteration is traced

  // A pull may wait for its version, and a gradient for the version before its own. Each part is also sent alone.
  bool may_wait() const { return pulls.n || gradients.n; }

  std::size_t head_size() const {
    return varint_field_size(sequence) + bytes_field_size(table.size()) + varint_field_size(epoch) +
           (may_wait() ? varint_field_size(wait_ms) : 0) + (iteration ? varint_field_size(iteration) : 0) +
           (trace_parent.empty() ? 0 : bytes_field_size(trace_parent.size()));
  }
  std::size_t push_size() const {
    return (rows.n ? bytes_field_size(rows.size()) : 0) + (gradients.n ? bytes_field_size(gradients.size()) : 0);
  }
  std::size_t pull_size() const { return pulls.n ? bytes_field_size(pulls.size()) : 0; }

  void write(std::uint8_t* message) const {
    Writer writer(message);
    writer.varint_field(1, sequence);
    writer.bytes_field(2, table.size());
    writer.bytes(table.data(), table.size());
    writer.varint_field(3, epoch);
    if (may_wait()) writer.varint_field(7, wait_ms);
    if (iteration) writer.varint_field(8, iteration);
    if (!trace_parent.empty()) {
      writer.bytes_field(9, trace_parent.size());
      writer.bytes(trace_parent.data(), trace_parent.size());
    }
    if (rows.n) {
      writer.bytes_field(4, rows.size());
      rows.write(writer);
    }
    if (gradients.n) {
      writer.bytes_field(5, gradients.size());
      gradients.write(writer);
    }
    if (pulls.n) {
      writer.bytes_field(6, pulls.size());
      pulls.write(writer);
    }
  }
};

}  // namespace esd::wire
