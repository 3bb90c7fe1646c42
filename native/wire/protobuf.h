// The parts of protobuf's wire format that plans, frames and reports use: varints, and fields of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>

namespace esd::wire {

enum class WireType : std::uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

inline std::size_t varint_size(std::uint64_t value) {
  std::size_t size = 1;
  while (value >>= 7) ++size;
  return size;
}

// Returns the address that follows the varint.
inline std::uint8_t* write_varint(std::uint8_t* out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) *out++ = static_cast<std::uint8_t>(value | 0x80);
  *out++ = static_cast<std::uint8_t>(value);
  return out;
}

// All fields of the exchange have numbers below 16, whose tags are one byte.
inline std::size_t varint_field_size(std::uint64_t value) { return 1 + varint_size(value); }
inline std::size_t bytes_field_size(std::size_t size) { return 1 + varint_size(size) + size; }

// Writes fields one after the other to memory that has room for them.
class Writer {
 public:
  explicit Writer(std::uint8_t* at) : at_(at) {}

  std::uint8_t* at() const { return at_; }

  void varint_field(std::uint32_t number, std::uint64_t value) {
    tag(number, WireType::kVarint);
    at_ = write_varint(at_, value);
  }

  // The head of a field of `size` bytes, which the caller writes.
  void bytes_field(std::uint32_t number, std::size_t size) {
    tag(number, WireType::kBytes);
    at_ = write_varint(at_, size);
  }

  void bytes(const void* data, std::size_t size) {
    if (size > 0) std::memcpy(at_, data, size);
    at_ += size;
  }

 private:
  void tag(std::uint32_t number, WireType type) {
    *at_++ = static_cast<std::uint8_t>(number << 3 | static_cast<std::uint32_t>(type));
  }

  std::uint8_t* at_;
};

// Reads fields one after the other. Bytes that are not a message raise std::invalid_argument.
class Reader {
 public:
  Reader(const std::uint8_t* data, std::size_t size) : begin_(data), at_(data), end_(data + size) {}

  struct Field {
    std::uint32_t number;
    WireType type;
    std::uint64_t value;  // of a varint
    std::size_t offset;   // of bytes, from the beginning of the message
    std::size_t size;
  };

  bool done() const { return at_ == end_; }
  std::size_t position() const { return static_cast<std::size_t>(at_ - begin_); }

  Field next() {
    const std::uint64_t tag = varint();
    Field field{static_cast<std::uint32_t>(tag >> 3), static_cast<WireType>(tag & 7), 0, 0, 0};
    if (tag >> 32 != 0 || field.number == 0) refuse();
    switch (field.type) {
      case WireType::kVarint: field.value = varint(); break;
      case WireType::kBytes: skip(field, varint()); break;
      case WireType::kFixed64: skip(field, 8); break;
      case WireType::kFixed32: skip(field, 4); break;
      default: refuse();
    }
    return field;
  }

 private:
  [[noreturn]] static void refuse() { throw std::invalid_argument("these bytes are no message"); }

  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_ == end_) refuse();
      const std::uint8_t byte = *at_++;
      if (shift == 63 && byte > 1) refuse();
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    refuse();
  }

  void skip(Field& field, std::uint64_t size) {
    if (size > static_cast<std::uint64_t>(end_ - at_)) refuse();
    field.offset = static_cast<std::size_t>(at_ - begin_);
    field.size = static_cast<std::size_t>(size);
    at_ += size;
  }

  const std::uint8_t* begin_;
  const std::uint8_t* at_;
  const std::uint8_t* end_;
};

}  // namespace esd::wire
