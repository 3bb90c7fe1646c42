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

}  // namespace esd
