// Which slot of which worker's cache holds a copy of a row.
//
// A row that one worker caches says so itself. A row that several cache, and every split row, has a record here: who
// caches it and where, and who has trained a split row together. With n workers a record is
//
//   byte 0        8              16          20               16 + 4n
//        | cached | contributors | slot at 0 | slot at 1 | ... | up to whole cache lines: one for up to 12 workers
//
// Where sets of workers have two words, slots begin at byte 32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "common/workers.h"
#include "engine/memory/huge_pages.h"
#include "engine/rows/index_types.h"
#include "engine/rows/row_state.h"

namespace esd {

class CopyDirectory {
 public:
  explicit CopyDirectory(unsigned workers)
      : record_bytes_((kSlots + 4 * workers + 63) / 64 * 64), records_(record_bytes_) {}

  // What is known about one row. There are no branches, which could hardly be predicted: a row that has no record reads
  // record 0, which is of no row.
  class Entry {
   public:
    // Where the worker caches the row; kNoSlot when it does not.
    SlotIndex slot(unsigned worker) const {
      static_assert(kNoSlot == ~SlotIndex{0}, "all bits are set in place of a slot");
      const auto own = slot_ | -static_cast<std::uint32_t>(location_ != worker);
      const auto recorded = -static_cast<std::uint32_t>(cached_.contains(worker));
      return (recorded & read<SlotIndex>(record_ + slot_at(worker))) | (~recorded & own);
    }

    // Who has trained the row together, if it is split, those included that have pushed since.
    WorkerSet contributors(const RowState& row) const {
      return read<WorkerSet>(record_ + kContributors).when(row.kind == kSplit);
    }

   private:
    friend class CopyDirectory;
    Entry(const RowState& row, const unsigned char* record)
        : record_(record), cached_(read<WorkerSet>(record + kCached)), location_(row.location), slot_(row.slot) {}

    const unsigned char* record_;
    WorkerSet cached_;  // by the record
    std::uint32_t location_, slot_;
  };
  Entry find(const RowState& row) const { return {row, record_to_read(row)}; }

  // The workers that cache the row, whether latest or not.
  WorkerSet cached(const RowState& row) const {
    if (row.location == kShared) return get<WorkerSet>(row, kCached);
    return row.location == kNowhere ? WorkerSet{} : WorkerSet::only(row.location);
  }

  // The workers of a set, one at least, cache the row, worker j in `slot_of(j)`, besides whoever does already. Where
  // they are several, they have trained it together.
  template <typename SlotOf>
  void add(RowState& row, WorkerSet workers, SlotOf slot_of) {
    const std::uint32_t location = row.location;
    const WorkerSet single = WorkerSet::only(location % kMaxWorkers).when(location < kShared);
    const WorkerSet cached = read<WorkerSet>(record_to_read(row) + kCached) | single | workers;
    const bool shared = cached.several();
    if (shared != (location == kShared)) shared ? share(row) : free_.push_back(row.slot);
    if (!shared) {
      const unsigned worker = workers.first();
      row.location = worker;
      row.slot = slot_of(worker);
      return;
    }
    unsigned char* record = records_.data() + row.slot * record_bytes_;
    write(record + kCached, cached);
    write(record + kContributors, workers);
    workers.for_each([&](unsigned j) { write(record + slot_at(j), slot_of(j)); });
  }

  void remove(RowState& row, unsigned worker) {
    if (row.location == worker) {
      row.location = kNowhere;
    } else {
      put(row, kCached, get<WorkerSet>(row, kCached) - WorkerSet::only(worker));
      tidy(row);
    }
  }

  // Gives up the record of a row that needs it no longer.
  void tidy(RowState& row) {
    if (row.location != kShared) return;
    const auto cached = get<WorkerSet>(row, kCached);
    if (cached.several() || (!cached.empty() && row.kind == kSplit)) return;
    free_.push_back(row.slot);
    row.location = kNowhere;
    if (cached.empty()) return;
    row.location = cached.first();
    row.slot = get<SlotIndex>(row, slot_at(row.location));
  }

  WorkerSet contributors(const RowState& row) const { return find(row).contributors(row); }

  [[gnu::always_inline]] void prefetch(const RowState& row) const { __builtin_prefetch(record_to_read(row)); }

  std::size_t memory_bytes() const { return records_.capacity() + free_.capacity() * sizeof(std::uint32_t); }

  // For snapshots.
  const HugeVector<unsigned char>& records() const { return records_; }
  const std::vector<std::uint32_t>& free_records() const { return free_; }
  void restore(HugeVector<unsigned char>&& records, std::vector<std::uint32_t>&& free_records) {
    records_ = std::move(records);
    free_ = std::move(free_records);
  }

 private:
  // Offsets in a record.
  static constexpr std::size_t kCached = 0, kContributors = sizeof(WorkerSet), kSlots = 2 * sizeof(WorkerSet);
  static std::size_t slot_at(unsigned worker) { return kSlots + 4 * worker; }

  template <typename T>
  static T read(const unsigned char* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
  }

  template <typename T>
  static void write(unsigned char* to, T value) {
    std::memcpy(to, &value, sizeof value);
  }

  // Record 0 for a row that has none.
  const unsigned char* record_to_read(const RowState& row) const {
    const auto has_record = -static_cast<std::uint32_t>(row.location == kShared);
    return records_.data() + (has_record & row.slot) * record_bytes_;
  }

  template <typename T>
  T get(const RowState& row, std::size_t offset) const {
    return read<T>(&records_[row.slot * record_bytes_ + offset]);
  }

  template <typename T>
  void put(const RowState& row, std::size_t offset, T value) {
    write(&records_[row.slot * record_bytes_ + offset], value);
  }

  // Gives a row a record, which names its only copy if there is one.
  void share(RowState& row) {
    const std::uint32_t worker = row.location, slot = row.slot;
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(records_.size() / record_bytes_));
      records_.resize(records_.size() + record_bytes_);
    }
    row.location = kShared;
    row.slot = free_.back();
    free_.pop_back();
    if (worker == kNowhere) return;
    put(row, kCached, WorkerSet::only(worker));
    put(row, slot_at(worker), slot);
  }

  std::size_t record_bytes_;
  HugeVector<unsigned char> records_;
  std::vector<std::uint32_t> free_;  // numbers of records that no row has
};

}  // namespace esd
