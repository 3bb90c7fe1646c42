// The mirror of one worker's embedding cache: which row is in which slot, and which leaves next.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/policy.h"

namespace esd {

struct CacheMirror {
  CacheMirror(std::uint32_t capacity, const std::string& policy_name)
      : capacity(capacity), policy(make_policy(policy_name, copies)) {}
  CacheMirror(const CacheMirror&) = delete;  // the policy refers to `copies`
  CacheMirror& operator=(const CacheMirror&) = delete;

  // Slots are used from 0 upwards; a slot once used always holds a copy.
  std::uint32_t used() const { return static_cast<std::uint32_t>(copies.size()); }
  std::uint32_t free() const { return capacity - used(); }

  std::size_t memory_bytes() const { return copies.capacity() * sizeof(Copy) + policy->memory_bytes(); }

  const std::uint32_t capacity;
  Copies copies;
  std::unique_ptr<Policy> policy;
};

}  // namespace esd
