// The one 64-bit mixer of the system, the finaliser of splitmix64: it hashes ids, chooses shards and seeds rows.
#pragma once

#include <cstdint>

namespace esd {

inline std::uint64_t mix64(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  x ^= x >> 31;
  return x;
}

// The inverse of mix64.
inline std::uint64_t unmix64(std::uint64_t x) {
  x ^= x >> 31 ^ x >> 62;
  x *= 0x319642b2d24d8ec3ULL;
  x ^= x >> 27 ^ x >> 54;
  x *= 0x96de1b173f119089ULL;
  x ^= x >> 30 ^ x >> 60;
  return x;
}

}  // namespace esd
