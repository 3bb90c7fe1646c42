// The reader of an answer to a frame, ExchangeResponse in protos/ps.proto: where its parts are, and its rows, scattered to
// their places. answer_writer.h is the other side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "common/initial_rows.h"
#include "wire/protobuf.h"

namespace esd::wire {

// A part of a message, by its offset: the message may move.
struct Part {
  std::size_t offset = 0;
  std::size_t size = 0;
};

struct AnswerParts {
  std::uint64_t sequence = 0;
  bool stored = false;
  std::uint64_t newly_stored = 0;
  std::uint64_t already_known = 0;
  Part positions;
  Part rows;
  Part initial;
  bool refused = false;
  bool done = false;
  bool credit = false;

  static AnswerParts read(const std::uint8_t* message, std::size_t size) {
    AnswerParts answer;
    for (Reader reader(message, size); !reader.done();) {
      const Reader::Field field = reader.next();
      const bool is_bytes = field.type == WireType::kBytes;
      if (is_bytes != (field.number >= 5 && field.number != 8) && field.number <= 10) {
        throw std::invalid_argument("a field has the wrong type");
      }
      switch (field.number) {
        case 1: answer.sequence = field.value; break;
        case 2: answer.stored = field.value != 0; break;
        case 3: answer.newly_stored = field.value; break;
        case 4: answer.already_known = field.value; break;
        case 5: answer.positions = {field.offset, field.size}; break;
        case 6: answer.rows = {field.offset, field.size}; break;
        case 7: answer.refused = true; break;
        case 8: answer.done = field.value != 0; break;
        case 9: answer.credit = true; break;
        case 10: answer.initial = {field.offset, field.size}; break;
        default: break;  // a newer server may have more to say
      }
    }
    return answer;
  }

  bool brings_rows() const { return rows.size > 0 || initial.size > 0; }
};

// The places of the rows that one frame asks for.
struct AnsweredRows {
  float* rows;                 // [.., width]
  const InitialRows& made;     // of the table: makes the rows that are not sent
  const std::uint64_t* ids;    // [n]
  const std::int64_t* places;  // [n]: the row of `rows` for each row that is asked for
  bool* arrived;               // [n]
  std::size_t n;
  std::size_t stateless;        // number of rows at the end that come without their optimizer state
  std::size_t cursor;           // index after the row that came last
  std::size_t initial = 0;      // number of rows that were made here
  std::size_t bytes_asked = 0;  // of the rows that came or were made

  // Copies the rows of a message to their places, makes those that it leaves out, and returns the number of both. Throws
  // std::invalid_argument if a row is not whole, was not asked for, or comes a second time.
  std::size_t scatter(const std::uint8_t* message, const AnswerParts& answer) {
    const std::size_t positions_listed = answer.positions.size / sizeof(std::uint32_t);
    const std::uint8_t* positions = message + answer.positions.offset;
    const std::uint8_t* row = message + answer.rows.offset;
    const std::uint8_t* const end = row + answer.rows.size;
    const std::uint8_t* const marks = message + answer.initial.offset;
    std::size_t count = 0;
    for (; row < end || count < answer.initial.size; ++count) {
      if (answer.initial.size > 0 && count == answer.initial.size) refuse_parts();
      std::size_t at = cursor;
      if (answer.positions.size > 0) {
        if (count == positions_listed) refuse_parts();
        std::uint32_t position;
        std::memcpy(&position, positions + count * sizeof position, sizeof position);
        at = position;
      }
      if (at >= n || arrived[at]) throw std::invalid_argument("the answer has rows that are not asked for");
      const std::size_t floats = at < n - stateless ? made.width : made.dimension, asked = floats * sizeof(float);
      float* const place = rows + static_cast<std::size_t>(places[at]) * made.width;
      if (answer.initial.size > 0 && marks[count] != 0) {
        fill_initial({made.seed, made.scale, made.dimension, floats}, ids[at], place);
        ++initial;
      } else {
        if (asked > static_cast<std::size_t>(end - row)) refuse_parts();
        std::memcpy(place, row, asked);
        row += asked;
      }
      bytes_asked += asked;
      arrived[at] = true;
      cursor = at + 1;
    }
    if (answer.positions.size > 0 && answer.positions.size != count * sizeof(std::uint32_t)) refuse_parts();
    return count;
  }

 private:
  [[noreturn]] static void refuse_parts() {
    throw std::invalid_argument("the answer does not hold whole rows, with a position each");
  }
};

}  // namespace esd::wire
