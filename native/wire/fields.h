// The fields of a message whose form is known, each at most once.
//
// A protobuf library also reads fields that are unknown, that come twice or that have another type. No program of ours
// writes them, so these readers refuse them, and the caller lets protobuf read the message, which can
// name the fault in words.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "wire/packed_column.h"
#include "wire/protobuf.h"

namespace esd::wire {

// Throws std::invalid_argument unless a message is as our programs write it.
inline void expect(bool usual) {
  if (!usual) throw std::invalid_argument("a message of unusual form");
}

// A part of a message, at any address.
struct Bytes {
  const std::uint8_t* data = nullptr;
  std::size_t size = 0;

  // The values, in the layout of memory; a rest that is no whole value is left out.
  template <typename T>
  std::vector<T> column() const {
    std::vector<T> values(size / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), data, values.size() * sizeof(T));
    return values;
  }
};

// Fields by number, below kFields. A field that the message leaves out is 0, or empty.
template <std::size_t kFields>
class Fields {
 public:
  explicit Fields(Bytes message) : data_(message.data) {
    for (Reader reader(message.data, message.size); !reader.done();) {
      const Reader::Field field = reader.next();
      expect(field.number < kFields && !fields_[field.number]);
      fields_[field.number] = field;
    }
  }

  bool has(std::uint32_t number) const { return fields_[number].has_value(); }

  std::uint64_t varint(std::uint32_t number, std::uint64_t most = std::numeric_limits<std::uint64_t>::max()) const {
    const auto& field = fields_[number];
    if (!field) return 0;
    expect(field->type == WireType::kVarint && field->value <= most);
    return field->value;
  }

  std::uint32_t varint32(std::uint32_t number) const {
    return static_cast<std::uint32_t>(varint(number, std::numeric_limits<std::uint32_t>::max()));
  }

  double float64(std::uint32_t number) const {
    const auto& field = fields_[number];
    if (!field) return 0;
    expect(field->type == WireType::kFixed64);
    double value;
    std::memcpy(&value, data_ + field->offset, sizeof value);
    return value;
  }

  Bytes bytes(std::uint32_t number) const {
    const auto& field = fields_[number];
    if (!field) return {};
    expect(field->type == WireType::kBytes);
    return {data_ + field->offset, field->size};
  }

  // A text of ASCII only, so that it needs no check of its UTF-8.
  std::string_view ascii(std::uint32_t number) const {
    const Bytes text = bytes(number);
    expect(std::none_of(text.data, text.data + text.size, [](std::uint8_t c) { return c >= 0x80; }));
    return {reinterpret_cast<const char*>(text.data), text.size};
  }

  // Values as they lie in memory, `count` of them.
  template <typename T>
  std::vector<T> array(std::uint32_t number, std::uint64_t count) const {
    const Bytes raw = bytes(number);
    expect(raw.size % sizeof(T) == 0 && raw.size / sizeof(T) == count);
    return raw.column<T>();
  }

  // How many values a packed column claims to have, without a check.
  std::size_t claimed(std::uint32_t number) const {
    const Bytes packed = bytes(number);
    return UnpackedColumn(packed.data, packed.size).count();
  }

  // The values of a packed column, `count` of them if that is given.
  template <typename T>
  std::vector<T> column(std::uint32_t number, std::optional<std::size_t> count = std::nullopt) const {
    const Bytes packed = bytes(number);
    const UnpackedColumn column(packed.data, packed.size);
    // Equal values take no bytes, in any number.
    expect(count ? column.count() == *count : column.count() <= 8 * packed.size);
    std::vector<T> values(column.count());
    if (!values.empty()) column.read(values.data());
    return values;
  }

 private:
  const std::uint8_t* data_;
  std::array<std::optional<Reader::Field>, kFields> fields_;
};

}  // namespace esd::wire
