// A sample of the distinct ids of each table, by their hashes, in fixed memory (Wegman's adaptive sampling: Flajolet,
// Computing 1990). An id is in the sample if the hash begins with as many zeros as the table's level. The level rises
// when the sample is full, which halves it. So a sampled id has been in the sample since its first occurrence, and what
// is kept with it, the iteration that had it last, is exact.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/mix64.h"

namespace esd::text {

class IdSample {
 public:
  static constexpr std::size_t kMost = std::size_t{1} << 15;  // ids of a table: 1 / sqrt(kMost) is 0.6%

  explicit IdSample(std::size_t tables) : tables_(tables) {
    if (tables < 1 || tables > 256) throw std::invalid_argument("there must be 1 to 256 tables");
  }

  // With several tables, the top 8 bits of an id are the number of its table.
  void add(const std::uint64_t* ids, std::size_t count, std::uint64_t iteration) {
    const std::size_t tables = tables_.size();
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t number = tables > 1 ? ids[i] >> 56 : 0;
      if (number >= tables) throw std::invalid_argument("an id is of table " + std::to_string(number));
      Table& table = tables_[number];
      const std::uint64_t hash = hash_of(ids[i]);
      if (hash <= table.most) table.add(ids[i], hash, iteration);
    }
  }

  // The sampled ids of a table that an iteration from `since` on had.
  std::size_t count(std::size_t table, std::uint64_t since) const {
    std::size_t found = 0;
    for (const Slot& slot : tables_[table].slots) found += slot.iteration > since;  // one more than the iteration
    return found;
  }

  // The share of a table's ids that is sampled is 1 / 2^level.
  int level(std::size_t table) const { return tables_[table].level; }
  std::size_t tables() const { return tables_.size(); }

 private:
  struct Slot {
    std::uint64_t id = 0;
    std::uint64_t iteration = 0;  // one more than the last one that had the id; 0 marks a free slot
  };

  static std::uint64_t hash_of(std::uint64_t id) { return mix64(id + 0x9e3779b97f4a7c15ULL); }

  struct Table {
    std::vector<Slot> slots = std::vector<Slot>(64);  // as many as a power of two, at most twice kMost
    std::size_t size = 0;
    int level = 0;
    std::uint64_t most = ~std::uint64_t{0};  // the largest hash of a sampled id

    void add(std::uint64_t id, std::uint64_t hash, std::uint64_t iteration) {
      Slot& slot = slot_of(id, hash);
      const bool is_new = slot.iteration == 0;
      slot = {id, iteration + 1};
      if (!is_new) return;
      if (++size > kMost) {
        ++level;
        most >>= 1;
        rebuild(slots.size());
      } else if (size * 2 > slots.size()) {
        rebuild(slots.size() * 2);
      }
    }

    Slot& slot_of(std::uint64_t id, std::uint64_t hash) {
      std::size_t at = hash & (slots.size() - 1);
      while (slots[at].iteration != 0 && slots[at].id != id) at = (at + 1) & (slots.size() - 1);
      return slots[at];
    }

    void rebuild(std::size_t places) {
      std::vector<Slot> old(places);
      old.swap(slots);
      size = 0;
      for (const Slot& slot : old) {
        const std::uint64_t hash = hash_of(slot.id);
        if (slot.iteration == 0 || hash > most) continue;
        slot_of(slot.id, hash) = slot;
        ++size;
      }
    }
  };

  std::vector<Table> tables_;
};

}  // namespace esd::text
