// Rows as the Redis store keeps them: records in fields of hashes (esd/ps_server/stores/redis/records.py).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/mix64.h"
#include "rows/checksum.h"

namespace esd::rows {

constexpr std::size_t kFieldBytes = 6;
constexpr std::size_t kNameBytes = kFieldBytes + 1;  // A name is a field and the last byte of the address.
constexpr unsigned kPartitionBits = 6;
constexpr unsigned kQuarterBits = 2;

// The place of a row: its hash, counted by partition and then by quarter, its field and the last byte of its address.
struct Address {
  std::uint64_t bits;

  static Address of(std::uint64_t id) { return {mix64(id)}; }

  static Address at(std::size_t place, const unsigned char* name) {
    std::uint64_t bits = place >> kQuarterBits | (place & ((1U << kQuarterBits) - 1)) << kPartitionBits;
    for (std::size_t i = 0; i < kNameBytes; ++i) bits |= static_cast<std::uint64_t>(name[i]) << 8 * (i + 1);
    return {bits};
  }

  std::uint64_t id() const { return unmix64(bits); }
  std::uint8_t last() const { return static_cast<std::uint8_t>(bits >> 56); }

  // The address with the same field and another last byte.
  Address beside(std::uint8_t last) const {
    return {(bits & ~std::uint64_t{0} >> 8) | static_cast<std::uint64_t>(last) << 56};
  }

  std::uint16_t place() const {
    constexpr unsigned kPartitions = 1U << kPartitionBits;
    const auto first = static_cast<unsigned>(bits & 0xff);
    return static_cast<std::uint16_t>((first % kPartitions) << kQuarterBits | first / kPartitions);
  }

  void copy_name(unsigned char* name) const {
    for (std::size_t i = 0; i < kNameBytes; ++i) name[i] = static_cast<unsigned char>(bits >> 8 * (i + 1));
  }
};

// The bytes of one record, which may be damaged.
class Record {
 public:
  // The record that begins at `data`, of which `left` bytes are there; whole() is false if it needs more.
  Record(const unsigned char* data, std::size_t left, std::size_t width) : data_(data), width_(width) {
    if (left < sizeof head_) return;
    std::memcpy(&head_, data, sizeof head_);
    whole_ = size() <= left;
  }

  bool whole() const { return whole_; }
  std::uint8_t last() const { return static_cast<std::uint8_t>(head_); }
  std::size_t size() const { return bytes(width_, goes_on()); }

  // Copies the row [width] and sets its version. Returns false if the checksum does not fit them and the id.
  bool read(std::uint64_t id, std::int64_t& version, float* row) const {
    const unsigned char* at = data_ + sizeof head_;
    version = head_ >> 8 & kShortMask;
    if (goes_on()) {
      std::uint32_t more;
      std::memcpy(&more, at, sizeof more);
      version |= static_cast<std::int64_t>(more) << kShortBits;
      at += sizeof more;
    }
    std::memcpy(row, at, width_ * sizeof(float));
    std::uint32_t sum;
    std::memcpy(&sum, at + width_ * sizeof(float), sizeof sum);
    return sum == row_checksum(id, version, row, width_);
  }

  // Writes a record to `out` and returns its size.
  static std::size_t write(unsigned char* out, std::uint64_t id, std::int64_t version, const float* row,
                           std::size_t width) {
    const auto more = static_cast<std::uint32_t>(version >> kShortBits);
    const bool goes_on = more != 0;
    const std::uint32_t head = Address::of(id).last() | static_cast<std::uint32_t>(version & kShortMask) << 8 |
                               static_cast<std::uint32_t>(goes_on) << 31;
    unsigned char* at = append(out, &head, sizeof head);
    if (goes_on) at = append(at, &more, sizeof more);
    at = append(at, row, width * sizeof(float));
    const std::uint32_t sum = row_checksum(id, version, row, width);
    append(at, &sum, sizeof sum);
    return bytes(width, goes_on);
  }

  static std::size_t most_bytes(std::size_t width) { return bytes(width, true); }

 private:
  static constexpr unsigned kShortBits = 23;
  static constexpr std::int64_t kShortMask = (1 << kShortBits) - 1;

  static std::size_t bytes(std::size_t width, bool goes_on) {
    return (goes_on ? 3 : 2) * sizeof(std::uint32_t) + width * sizeof(float);
  }

  static unsigned char* append(unsigned char* at, const void* data, std::size_t size) {
    std::memcpy(at, data, size);
    return at + size;
  }

  bool goes_on() const { return head_ >> 31 != 0; }

  const unsigned char* data_;
  std::size_t width_;
  std::uint32_t head_ = 0;
  bool whole_ = false;
};

}  // namespace esd::rows
