// Columns of integers on the wire, each value in as many bits as the widest needs above the least one:
//
//   varint count | byte bits, 0..64 | varint least | count x bits, from the lowest bit of the first byte on
//
// Arithmetic is modulo 2^64, so int64 columns are packed by their order as signed numbers. A column without values has
// no bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "wire/protobuf.h"

namespace esd::wire {

// A column to be packed. It is measured first, because a message has the length of each field before its content.
template <typename T>
class PackedColumn {
 public:
  PackedColumn(const T* values, std::size_t count) : values_(values), count_(count) {
    if (count == 0) return;
    T least = values[0], most = values[0];  // local copies, so that the compiler compares several values at once
    for (std::size_t i = 1; i < count; ++i) {
      least = std::min(least, values[i]);
      most = std::max(most, values[i]);
    }
    least_ = least;
    const std::uint64_t range = static_cast<std::uint64_t>(most) - static_cast<std::uint64_t>(least);
    bits_ = range == 0 ? 0 : 64 - static_cast<unsigned>(__builtin_clzll(range));
  }

  std::size_t bytes() const {
    if (count_ == 0) return 0;
    return varint_size(count_) + 1 + varint_size(least_) + (count_ * bits_ + 7) / 8;
  }

  // Appends the column.
  void append_to(std::string& out) const {
    if (count_ == 0) return;
    const std::size_t begin = out.size();
    out.resize(begin + bytes() + kSlack);
    auto* at = reinterpret_cast<std::uint8_t*>(out.data()) + begin;
    at = write_varint(at, count_);
    *at++ = static_cast<std::uint8_t>(bits_);
    at = write_varint(at, least_);
    if (bits_ > 0) pack(at);
    out.resize(begin + bytes());
  }

 private:
  static constexpr std::size_t kSlack = 8;  // words are written whole

  // A word is written only when it is full: reading back a partly written word would stall.
  void pack(std::uint8_t* at) const {
    std::uint64_t word = 0;
    unsigned filled = 0;  // bits in use of the word
    for (std::size_t i = 0; i < count_; ++i) {
      const std::uint64_t value = static_cast<std::uint64_t>(values_[i]) - least_;
      word |= value << filled;
      filled += bits_;
      if (filled < 64) continue;
      std::memcpy(at, &word, 8);
      at += 8;
      filled -= 64;
      word = value >> 1 >> (bits_ - filled - 1);  // the bits that did not fit; a shift by 64 is undefined
    }
    std::memcpy(at, &word, 8);
  }

  const T* values_;
  std::size_t count_;
  std::uint64_t least_ = 0;
  unsigned bits_ = 0;
};

// A column that was received. The constructor reads and checks its head; it throws std::invalid_argument, with a text
// that continues the name of the field.
class UnpackedColumn {
 public:
  UnpackedColumn(const std::uint8_t* data, std::size_t size) : end_(data + size) {
    if (size == 0) return;
    const std::uint8_t* at = data;
    count_ = read_varint(at);
    if (at == end_) refuse_end();
    bits_ = *at++;
    least_ = read_varint(at);
    at_ = at;
    const auto left = static_cast<std::size_t>(end_ - at);
    if (bits_ > 64) throw std::invalid_argument("has " + std::to_string(bits_) + " bits per value, 64 at most");
    // Checked before any allocation: a count that does not match the number of bytes.
    if (count_ == 0 || (bits_ != 0 && (count_ > 8 * left || (count_ * bits_ + 7) / 8 != left)) ||
        (bits_ == 0 && left != 0)) {
      throw std::invalid_argument("has " + std::to_string(left) + " bytes for " + std::to_string(count_) +
                                  " values of " + std::to_string(bits_) + " bits");
    }
  }

  std::uint64_t count() const { return count_; }
  unsigned bits() const { return bits_; }

  template <typename T>
  void read(T* out) const {
    const auto size = static_cast<std::size_t>(end_ - at_);
    // Words are read whole while they lie in the column.
    const std::size_t whole = bits_ == 0 ? 0 : size < 9 ? 0 : std::min<std::size_t>(count_, (size - 9) * 8 / bits_);
    std::uint64_t widest = 0;
    for (std::size_t i = 0; i < whole; ++i) {
      const std::size_t position = i * bits_;
      std::uint64_t word;
      std::memcpy(&word, at_ + position / 8, 8);
      widest |= put(out[i], word, position);
    }
    for (std::size_t i = whole; i < count_; ++i) {
      const std::size_t position = i * bits_;
      std::uint64_t word = 0;
      if (bits_ != 0) std::memcpy(&word, at_ + position / 8, std::min<std::size_t>(8, size - position / 8));
      widest |= put(out[i], word, position);
    }
    if (sizeof(T) < 8 && widest >> (8 * sizeof(T) % 64) != 0) {
      throw std::invalid_argument("has a value of more than " + std::to_string(8 * sizeof(T)) + " bits");
    }
  }

 private:
  // Extracts a value from the word that contains its first bit.
  template <typename T>
  std::uint64_t put(T& out, std::uint64_t word, std::size_t position) const {
    const unsigned shift = position % 8;
    word >>= shift;
    if (shift + bits_ > 64) word |= static_cast<std::uint64_t>(at_[position / 8 + 8]) << (64 - shift);
    const std::uint64_t mask = bits_ == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits_) - 1;
    const std::uint64_t value = (word & mask) + least_;
    out = static_cast<T>(value);
    return value;
  }

  [[noreturn]] static void refuse_end() { throw std::invalid_argument("ends in its head"); }

  std::uint64_t read_varint(const std::uint8_t*& at) const {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at == end_) refuse_end();
      const std::uint8_t byte = *at++;
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw std::invalid_argument("has a number of more than 64 bits in its head");
  }

  const std::uint8_t* at_ = nullptr;
  const std::uint8_t* end_;
  std::uint64_t count_ = 0, least_ = 0;
  unsigned bits_ = 0;
};

}  // namespace esd::wire
