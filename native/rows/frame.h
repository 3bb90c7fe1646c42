// A frame of the exchange, ExchangeRequest in protos/ps.proto, as its bytes have it.
//
// What is decoded here is read as every protobuf library reads it. Bytes that a library might read, but that no client
// of ours writes (fields that come twice, unknown ones), are none of this decoder's business: it refuses them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "wire/protobuf.h"

namespace esd::rows {

struct Bytes {
  const std::uint8_t* data = nullptr;
  std::size_t size = 0;

  // The numbers in these bytes, which may lie at any address.
  template <typename T>
  std::vector<T> column() const {
    std::vector<T> numbers(size / sizeof(T));
    if (!numbers.empty()) std::memcpy(numbers.data(), data, numbers.size() * sizeof(T));
    return numbers;
  }
};

struct Frame {
  struct Rows {
    bool present = false;
    Bytes ids, versions, rows;
  };
  struct Gradients {
    bool present = false;
    Bytes ids, targets, contributors, steps, rates, gradients;
    std::uint32_t worker = 0;
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

  // Raises std::invalid_argument for bytes that are no frame, or an unusual one.
  static Frame read(const std::uint8_t* data, std::size_t size) {
    Frame frame;
    Fields fields(data, size);
    while (fields.next()) {
      switch (fields.number()) {
        case 1: frame.sequence = fields.varint(); break;
        case 2: {
          const Bytes name = fields.bytes();
          if (std::any_of(name.data, name.data + name.size, [](std::uint8_t c) { return c >= 0x80; })) Fields::refuse();
          frame.table = {reinterpret_cast<const char*>(name.data), name.size};
          break;
        }
        case 3: frame.epoch = fields.varint(); break;
        case 4: frame.rows = read_rows(fields.bytes()); break;
        case 5: frame.gradients = read_gradients(fields.bytes()); break;
        case 6: frame.pulls = read_pulls(fields.bytes()); break;
        case 7: frame.wait_ms = fields.small_varint(); break;
        default: Fields::refuse();
      }
    }
    return frame;
  }

 private:
  // The fields of a message, each of which comes once.
  class Fields {
   public:
    Fields(const std::uint8_t* data, std::size_t size) : data_(data), reader_(data, size) {}
    explicit Fields(Bytes message) : Fields(message.data, message.size) {}

    [[noreturn]] static void refuse() { throw std::invalid_argument("these bytes are no frame"); }

    bool next() {
      if (reader_.done()) return false;
      field_ = reader_.next();
      if (field_.number > 15 || (seen_ >> field_.number & 1) != 0) refuse();
      seen_ |= 1u << field_.number;
      return true;
    }

    std::uint32_t number() const { return field_.number; }

    std::uint64_t varint() const {
      if (field_.type != wire::WireType::kVarint) refuse();
      return field_.value;
    }

    std::uint32_t small_varint() const {
      if (varint() >> 32 != 0) refuse();
      return static_cast<std::uint32_t>(field_.value);
    }

    Bytes bytes() const {
      if (field_.type != wire::WireType::kBytes) refuse();
      return {data_ + field_.offset, field_.size};
    }

   private:
    const std::uint8_t* data_;
    wire::Reader reader_;
    wire::Reader::Field field_{};
    std::uint32_t seen_ = 0;  // bit n: a field of number n has come
  };

  static Rows read_rows(Bytes message) {
    Rows rows;
    rows.present = true;
    Fields fields(message);
    while (fields.next()) {
      switch (fields.number()) {
        case 1: rows.ids = fields.bytes(); break;
        case 2: rows.versions = fields.bytes(); break;
        case 3: rows.rows = fields.bytes(); break;
        default: Fields::refuse();
      }
    }
    return rows;
  }

  static Gradients read_gradients(Bytes message) {
    Gradients gradients;
    gradients.present = true;
    Fields fields(message);
    while (fields.next()) {
      switch (fields.number()) {
        case 1: gradients.ids = fields.bytes(); break;
        case 2: gradients.targets = fields.bytes(); break;
        case 3: gradients.contributors = fields.bytes(); break;
        case 4: gradients.steps = fields.bytes(); break;
        case 5: gradients.gradients = fields.bytes(); break;
        case 6: gradients.worker = fields.small_varint(); break;
        case 7: gradients.rates = fields.bytes(); break;
        default: Fields::refuse();
      }
    }
    return gradients;
  }

  static Pulls read_pulls(Bytes message) {
    Pulls pulls;
    pulls.present = true;
    Fields fields(message);
    while (fields.next()) {
      switch (fields.number()) {
        case 1: pulls.ids = fields.bytes(); break;
        case 2: pulls.versions = fields.bytes(); break;
        case 3: pulls.stateless = fields.small_varint(); break;
        default: Fields::refuse();
      }
    }
    return pulls;
  }
};

}  // namespace esd::rows
