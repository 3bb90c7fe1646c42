// The mirror of one worker's embedding cache: which row is in which slot, and which leaves next.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/cache/policy.h"

namespace esd {

struct CacheMirror {
  CacheMirror(std::uint32_t capacity, const std::string& policy_name, const RowTraits& rows)
      : capacity(capacity), policy(make_policy(policy_name, copies, rows)) {}
  CacheMirror(const CacheMirror&) = delete;  // the policy refers to `copies`
  CacheMirror& operator=(const CacheMirror&) = delete;

  // Slots are used from 0 upwards.
  std::uint32_t slots() const { return static_cast<std::uint32_t>(copies.size()); }
  std::uint32_t rows() const { return static_cast<std::uint32_t>(copies.size() - vacant.size()); }
  std::uint64_t free() const { return capacity - filled; }

  // Of copies that iteration `now` uses: they leave their places in the policy's order.
  void restamp(const std::uint32_t* slots, std::size_t count, std::uint32_t now) {
    constexpr std::size_t kAhead = 24;
    for (std::size_t i = 0; i < count; ++i) {
      if (i + kAhead < count) __builtin_prefetch(&copies[slots[i + kAhead]], 1);
      copies[slots[i]].stamp = use_stamp(now);
    }
  }

  std::size_t memory_bytes() const {
    return copies.capacity() * sizeof(Copy) + vacant.capacity() * sizeof(std::uint32_t) + policy->memory_bytes();
  }

  const std::uint32_t capacity;  // in units of row size
  std::uint64_t filled = 0;      // likewise
  Copies copies;
  Slots vacant;  // slots without a copy, marked by row kNone; there are none as long as all rows have
                 // the same size and stay in the table
  std::unique_ptr<Policy> policy;
};

}  // namespace esd
