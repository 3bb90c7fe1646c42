// The mirror of one worker's embedding cache: which row is in which slot, and which leaves next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/cache/policy.h"
#include "engine/rows/copies.h"
#include "engine/rows/index_types.h"

namespace esd {

struct CacheMirror {
  CacheMirror(std::uint32_t capacity, const std::string& policy_name, const RowTraits& rows)
      : capacity(capacity), vacant(rows.sizes.tables()), policy(make_policy(policy_name, copies, rows)) {
    if (!rows.sizes.uniform()) used_.resize(rows.sizes.tables());
  }
  CacheMirror(const CacheMirror&) = delete;  // the policy refers to `copies`
  CacheMirror& operator=(const CacheMirror&) = delete;

  // Slots are taken into use from 0 upwards.
  SlotIndex slots() const { return static_cast<SlotIndex>(copies.size()); }
  std::uint32_t rows() const {
    std::size_t rows = copies.size();
    for (const Slots& each : vacant) rows -= each.size();
    return static_cast<std::uint32_t>(rows);
  }
  std::uint64_t free() const { return capacity - filled; }

  // Gives copies the stamp of their use in iteration `now`: they leave their positions in the policy's order.
  void restamp(const SlotIndex* slots, std::size_t count, std::uint32_t now) {
    constexpr std::size_t kAhead = 24;
    for (std::size_t i = 0; i < count; ++i) {
      if (i + kAhead < count) __builtin_prefetch(&copies[slots[i + kAhead]], 1);
      copies[slots[i]].stamp = use_stamp(now);
    }
  }

  // Takes more slots into use, for rows of a table. Returns the first of them.
  SlotIndex add_slots(TableNumber table, SlotIndex count) {
    const SlotIndex first = slots();
    copies.resize(copies.size() + count, Copy{0, 0, 0, 0, 0, table});
    for (SlotIndex i = 0; i < count && !used_.empty(); ++i) table_slots_.push_back(used_[table]++);
    return first;
  }

  // The worker has a cache for each table, whose slots are counted from 0. Returns the number of a slot in its table's cache.
  SlotIndex table_slot(SlotIndex slot) const { return used_.empty() ? slot : table_slots_[slot]; }

  // Saved in snapshots: together with the copies, they determine the slots that each table uses.
  const Slots& table_slots() const { return table_slots_; }
  void restore_table_slots(Slots&& slots) {
    table_slots_ = std::move(slots);
    if (!used_.empty()) {
      for (const Copy& copy : copies) ++used_[copy.table];
    }
  }

  std::size_t memory_bytes() const {
    std::size_t slots = table_slots_.capacity();
    for (const Slots& each : vacant) slots += each.capacity();
    return copies.capacity() * sizeof(Copy) + slots * sizeof(SlotIndex) + policy->memory_bytes();
  }

  const std::uint32_t capacity;  // in units of row size; every row has size 1 where there is one table
  std::uint64_t filled = 0;      // likewise
  Copies copies;
  std::vector<Slots> vacant;  // by table, used slots without a copy: none with one table of which no row is forgotten
  std::unique_ptr<Policy> policy;

 private:
  std::vector<SlotIndex> used_;  // by table, its slots; empty with one table
  Slots table_slots_;            // by slot; empty with one table
};

}  // namespace esd
