// The 64-bit id of a categorical value, a hash of its field and its text. esd/data/hashing.py specifies it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/mix64.h"

namespace esd::text {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "ids are defined by little-endian words");

// Folds the text into the field's key as little-endian 64-bit words, the last one padded with zero bytes.
inline std::uint64_t hash_text(std::uint64_t field_key, const char* text, std::size_t length) {
  std::uint64_t hash = mix64(field_key ^ (length * 0x9e3779b97f4a7c15ULL));
  std::uint64_t word;
  for (; length >= sizeof word; text += sizeof word, length -= sizeof word) {
    std::memcpy(&word, text, sizeof word);
    hash = mix64(hash ^ word);
  }
  if (length > 0) {
    word = 0;
    std::memcpy(&word, text, length);
    hash = mix64(hash ^ word);
  }
  return hash;
}

}  // namespace esd::text
