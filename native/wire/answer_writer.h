// The writer of an answer to a frame, ExchangeResponse in protos/ps.proto. Each row is copied once, from the table into the
// message. answer_reader.h is the other side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "wire/protobuf.h"

namespace esd::wire {

// The result of a frame's push, which its first answer reports.
struct Stored {
  bool any = false;  // the frame pushes something
  std::uint64_t newly_stored = 0;
  std::uint64_t already_known = 0;
};

class AnswerWriter {
 public:
  static constexpr std::size_t kBesideRows = 64;  // more than an answer takes without rows and their marks
  static constexpr std::size_t kBesideRow = 5;    // the marks of a row: its position, and whether it is an initial one

  // `message` has room for the whole answer.
  AnswerWriter(std::uint8_t* message, std::uint64_t sequence, const Stored& stored)
      : message_(message), writer_(message) {
    writer_.varint_field(1, sequence);
    if (!stored.any) return;
    writer_.varint_field(2, 1);
    if (stored.newly_stored) writer_.varint_field(3, stored.newly_stored);
    if (stored.already_known) writer_.varint_field(4, stored.already_known);
  }

  // The address to which the caller copies rows of at most `longest` bytes, before it calls `rows`.
  std::uint8_t* rows_at(std::size_t longest) const {
    return writer_.at() + (longest > 0 ? bytes_field_size(longest) - longest : 0);
  }

  // Adds the rows that lie in the message from `begin`, which `rows_at` has returned, to `end`.
  void rows(const std::uint8_t* begin, const std::uint8_t* end) {
    const auto size = static_cast<std::size_t>(end - begin);
    writer_.bytes_field(6, size);
    if (writer_.at() != begin) std::memmove(writer_.at(), begin, size);  // the head of fewer rows may be shorter
    writer_ = Writer(writer_.at() + size);
  }

  void positions(const std::vector<std::uint32_t>& positions) {
    writer_.bytes_field(5, positions.size() * sizeof(std::uint32_t));
    writer_.bytes(positions.data(), positions.size() * sizeof(std::uint32_t));
  }

  // `initial` has 1 for each answered row that `rows` leaves out, since its receiver makes it, and 0 for the others.
  void initial(const std::vector<std::uint8_t>& initial) {
    writer_.bytes_field(10, initial.size());
    writer_.bytes(initial.data(), initial.size());
  }

  void done() { writer_.varint_field(8, 1); }

  std::size_t size() const { return static_cast<std::size_t>(writer_.at() - message_); }

 private:
  std::uint8_t* message_;
  Writer writer_;
};

}  // namespace esd::wire
