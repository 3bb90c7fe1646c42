// Which slot of which worker's cache holds a copy of a row.
//
// A row cached at one worker says so itself. Rows cached at several, and split rows, have a record here: who caches the
// row and where, and who has trained a split row together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/memory/huge_pages.h"
#include "engine/rows/copies.h"
#include "engine/rows/row_state.h"

namespace esd {

class CopyDirectory {
 public:
  // Records are whole cache lines, one up to 12 workers.
  explicit CopyDirectory(unsigned workers)
      : record_bytes_((kSlots + 4 * workers + 63) / 64 * 64), records_(record_bytes_) {}

  // What is known about one row. Without branches, which could hardly be predicted: a row that has no record reads record
  // 0, which is nobody's.
  class Entry {
   public:
    // Where the worker caches the row; kNone when it does not.
    std::uint32_t slot(unsigned worker) const {
      const auto own = slot_ | -static_cast<std::uint32_t>(place_ != worker);  // kNone is all ones
      const auto recorded = -static_cast<std::uint32_t>(cached_ >> worker & 1);
      return (recorded & read<std::uint32_t>(record_ + slot_at(worker))) | (~recorded & own);
    }

    // Who has trained the row together, if it is split, those included that have pushed since.
    WorkerMask contributors(const RowState& row) const {
      return read<WorkerMask>(record_ + kContributors) & all_if(row.kind == kSplit);
    }

   private:
    friend class CopyDirectory;
    Entry(const RowState& row, const unsigned char* record)
        : record_(record), cached_(read<WorkerMask>(record + kCached)), place_(row.place), slot_(row.slot) {}

    const unsigned char* record_;
    WorkerMask cached_;  // by the record
    std::uint32_t place_, slot_;
  };
  Entry find(const RowState& row) const { return {row, record_to_read(row)}; }

  // The workers that cache the row, whether latest or not.
  WorkerMask cached(const RowState& row) const {
    if (row.place == kShared) return get<WorkerMask>(row, kCached);
    return row.place == kNowhere ? 0 : worker_bit(row.place);
  }

  // The workers of a set, one at least, cache the row, worker j in `slot_of(j)`, besides whoever does already. Where they
  // are several, they have trained it together.
  template <typename SlotOf>
  void add(RowState& row, WorkerMask workers, SlotOf slot_of) {
    const std::uint32_t place = row.place;
    const WorkerMask single = worker_bit(place & 63) & all_if(place < kShared);
    const WorkerMask cached = read<WorkerMask>(record_to_read(row) + kCached) | single | workers;
    const bool shared = several(cached);
    if (shared != (place == kShared)) shared ? share(row) : free_.push_back(row.slot);
    if (!shared) {
      const unsigned worker = first_worker(workers);
      row.place = worker;
      row.slot = slot_of(worker);
      return;
    }
    unsigned char* record = records_.data() + row.slot * record_bytes_;
    write(record + kCached, cached);
    write(record + kContributors, workers);
    for_each_worker(workers, [&](unsigned j) { write(record + slot_at(j), slot_of(j)); });
  }

  void remove(RowState& row, unsigned worker) {
    if (row.place == worker) {
      row.place = kNowhere;
    } else {
      put(row, kCached, get<WorkerMask>(row, kCached) & ~worker_bit(worker));
      tidy(row);
    }
  }

  // Gives up the record of a row that needs it no longer.
  void tidy(RowState& row) {
    if (row.place != kShared) return;
    const auto cached = get<WorkerMask>(row, kCached);
    if (several(cached) || (cached && row.kind == kSplit)) return;
    free_.push_back(row.slot);
    row.place = cached ? first_worker(cached) : kNowhere;
    if (cached) row.slot = get<std::uint32_t>(row, slot_at(row.place));
  }

  WorkerMask contributors(const RowState& row) const { return find(row).contributors(row); }

  [[gnu::always_inline]] void prefetch(const RowState& row) const { __builtin_prefetch(record_to_read(row)); }

  std::size_t memory_bytes() const { return records_.capacity() + free_.capacity() * sizeof(std::uint32_t); }

  const HugeVector<unsigned char>& records() const { return records_; }
  const std::vector<std::uint32_t>& free_records() const { return free_; }
  void assign(HugeVector<unsigned char>&& records, std::vector<std::uint32_t>&& free_records) {
    records_ = std::move(records);
    free_ = std::move(free_records);
  }

 private:
  // Offsets in a record.
  static constexpr std::size_t kCached = 0, kContributors = 8, kSlots = 16;
  static std::size_t slot_at(unsigned worker) { return kSlots + 4 * worker; }

  template <typename T>
  static T read(const unsigned char* place) {
    T value;
    std::memcpy(&value, place, sizeof value);
    return value;
  }

  template <typename T>
  static void write(unsigned char* place, T value) {
    std::memcpy(place, &value, sizeof value);
  }

  // Record 0 for a row that has none.
  const unsigned char* record_to_read(const RowState& row) const {
    const auto has_record = -static_cast<std::uint32_t>(row.place == kShared);
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

  // Gives a row a record, with the whereabouts of its only copy if there is one.
  void share(RowState& row) {
    const std::uint32_t worker = row.place, slot = row.slot;
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(records_.size() / record_bytes_));
      records_.resize(records_.size() + record_bytes_);
    }
    row.place = kShared;
    row.slot = free_.back();
    free_.pop_back();
    if (worker == kNowhere) return;
    put(row, kCached, worker_bit(worker));
    put(row, slot_at(worker), slot);
  }

  std::size_t record_bytes_;
  HugeVector<unsigned char> records_;
  std::vector<std::uint32_t> free_;
};

}  // namespace esd
