// The mirror of one worker's embedding cache: which row is in which slot, and which leaves next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/cache/policy.h"
#include "engine/rows/copies.h"
#include "engine/rows/index_types.h"

namespace esd {

struct CacheMirror {
  CacheMirror(std::uint32_t capacity, const std::string& policy_name, const RowTraits& rows)
      : capacity(capacity), policy(make_policy(policy_name, copies, rows)) {}
  CacheMirror(const CacheMirror&) = delete;  // the policy refers to `copies`
  CacheMirror& operator=(const CacheMirror&) = delete;

  // Slots are taken into use from 0 upwards.
  SlotIndex slots() const { return static_cast<SlotIndex>(copies.size()); }
  std::uint32_t rows() const { return static_cast<std::uint32_t>(copies.size() - vacant.size()); }
  std::uint64_t free() const { return capacity - filled; }

  // Gives copies the stamp of their use in iteration `now`: they leave their positions in the policy's order.
  void restamp(const SlotIndex* slots, std::size_t count, std::uint32_t now) {
    constexpr std::size_t kAhead = 24;
    for (std::size_t i = 0; i < count; ++i) {
      if (i + kAhead < count) __builtin_prefetch(&copies[slots[i + kAhead]], 1);
      copies[slots[i]].stamp = use_stamp(now);
    }
  }

  std::size_t memory_bytes() const {
    return copies.capacity() * sizeof(Copy) + vacant.capacity() * sizeof(SlotIndex) + policy->memory_bytes();
  }

  const std::uint32_t capacity;  // in units of row size; every row has size 1 where sizes are not given
  std::uint64_t filled = 0;      // likewise
  Copies copies;
  Slots vacant;  // used slots without a copy; there are none as long as rows have one size and none is forgotten
  std::unique_ptr<Policy> policy;
};

}  // namespace esd
