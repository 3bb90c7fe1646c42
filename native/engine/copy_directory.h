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

#include "engine/copies.h"
#include "engine/huge_pages.h"
#include "engine/row_state.h"

namespace esd {

class CopyDirectory {
 public:
  // Records are whole cache lines, one up to 12 workers.
  explicit CopyDirectory(unsigned workers) 
      : record_bytes_((kSlots + 4 * workers + 63) / 64 * 64), records_(record_bytes_) {}

  // kNone when the worker does not cache the row. Without branches, which could hardly be predicted: a row that has no
  // record reads record 0, which is nobody's.
  std::uint32_t slot(const RowState& row, unsigned worker) const {
    const std::size_t has_record = row.place == kShared, elsewhere = row.place != worker;
    const unsigned char* record = &records_[has_record * row.slot * record_bytes_];
    const auto own = row.slot | -static_cast<std::uint32_t>(elsewhere);  // kNone is all ones
    const auto recorded = -static_cast<std::uint32_t>(read<WorkerMask>(record + kCached) >> worker & 1);
    return (recorded & read<std::uint32_t>(record + slot_at(worker))) | (~recorded & own);
  }

  // The workers that cache the row, whether latest or not.
  WorkerMask cached(const RowState& row) const {
    if (row.place == kShared) return get<WorkerMask>(row, kCached);
    return row.place == kNowhere ? 0 : worker_bit(row.place);
  }

  void add(RowState& row, unsigned worker, std::uint32_t slot) {
    if (row.place == kNowhere) {
      row.place = worker;
      row.slot = slot;
      return;
    }
    if (row.place != kShared) share(row);
    put(row, kCached, get<WorkerMask>(row, kCached) | worker_bit(worker));
    put(row, slot_at(worker), slot);
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
    if ((cached & (cached - 1)) || (cached && row.kind == kSplit)) return;
    free_.push_back(row.slot);
    row.place = cached ? static_cast<std::uint32_t>(__builtin_ctzll(cached)) : kNowhere;
    if (cached) row.slot = get<std::uint32_t>(row, slot_at(row.place));
  }

  // Who has trained a split row together, those included that have pushed since.
  WorkerMask contributors(const RowState& row) const { return get<WorkerMask>(row, kContributors); }
  void set_contributors(const RowState& row, WorkerMask workers) { put(row, kContributors, workers); }

  void prefetch(const RowState& row) const {
    if (row.place == kShared) __builtin_prefetch(&records_[row.slot * record_bytes_]);
  }

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
  T get(const RowState& row, std::size_t offset) const {
    return read<T>(&records_[row.slot * record_bytes_ + offset]);
  }

  template <typename T>
  void put(const RowState& row, std::size_t offset, T value) {
    std::memcpy(&records_[row.slot * record_bytes_ + offset], &value, sizeof value);
  }

  // Moves the whereabouts of a row's only copy to a record.
  void share(RowState& row) {
    const std::uint32_t worker = row.place, slot = row.slot;
    if (free_.empty()) {
      free_.push_back(static_cast<std::uint32_t>(records_.size() / record_bytes_));
      records_.resize(records_.size() + record_bytes_);
    }
    row.place = kShared;
    row.slot = free_.back();
    free_.pop_back();
    put(row, kCached, worker_bit(worker));
    put(row, slot_at(worker), slot);
  }

  std::size_t record_bytes_;
  HugeVector<unsigned char> records_;
  std::vector<std::uint32_t> free_;
};

}  // namespace esd
