// The reader of a frame, ExchangeRequest in protos/ps.proto, whose columns stay in the message. frame_writer.h is the other
// side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "wire/fields.h"

namespace esd::wire {

struct FrameView {
  struct Rows {
    bool present = false;
    Bytes ids, versions, rows;
  };
  struct Gradients {
    bool present = false;
    Bytes ids, targets, contributors, steps, gradients;
    std::uint32_t worker = 0;
    Bytes rates;
  };
  struct Pulls {
    bool present = false;
    Bytes ids, versions;
    std::uint32_t stateless = 0;
  };

  std::uint64_t sequence = 0;
  std::string_view table;
  std::uint64_t epoch = 0;
  Rows rows;
  Gradients gradients;
  Pulls pulls;
  std::uint32_t wait_ms = 0;
  std::string_view trace_parent;

  // Throws std::invalid_argument for bytes that are no frame, or a frame of unusual form.
  static FrameView read(Bytes message) {
    const Fields<10> fields(message);
    expect(!fields.has(8));
    FrameView frame;
    frame.sequence = fields.varint(1);
    frame.table = fields.ascii(2);
    frame.epoch = fields.varint(3);
    if (fields.has(4)) frame.rows = read_rows(fields.bytes(4));
    if (fields.has(5)) frame.gradients = read_gradients(fields.bytes(5));
    if (fields.has(6)) frame.pulls = read_pulls(fields.bytes(6));
    frame.wait_ms = fields.varint32(7);
    frame.trace_parent = fields.ascii(9);
    return frame;
  }

 private:
  static Rows read_rows(Bytes message) {
    const Fields<4> fields(message);
    return {true, fields.bytes(1), fields.bytes(2), fields.bytes(3)};
  }

  static Gradients read_gradients(Bytes message) {
    const Fields<8> fields(message);
    return {true,
            fields.bytes(1),
            fields.bytes(2),
            fields.bytes(3),
            fields.bytes(4),
            fields.bytes(5),
            fields.varint32(6),
            fields.bytes(7)};
  }

  static Pulls read_pulls(Bytes message) {
    const Fields<4> fields(message);
    return {true, fields.bytes(1), fields.bytes(2), fields.varint32(3)};
  }
};

}  // namespace esd::wire
