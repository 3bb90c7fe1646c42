// Which rows every worker replicates: the hottest of the stream, as FAE (ESD paper, section 6.1) and SCARS have them.
//
// A replicated row stays in the caches of all workers, which train it together by the sum of their gradients. Reads are
// counted as the stream goes by, and count for less the longer ago they were. Every kPeriod iterations the rows that are
// read most are chosen anew: those that are not among them any more leave at once, others join with their next training.
// So the set follows from the stream and the seed alone, not from who trains what.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "common/mix64.h"
#include "common/workers.h"
#include "engine/batch/prepared_batch.h"
#include "engine/batch/row_sizes.h"
#include "engine/rows/index_types.h"
#include "engine/rows/row_state.h"
#include "engine/rows/state_index.h"

namespace esd {

class Replication {
 public:
  static constexpr std::uint32_t kPeriod = 32;  // iterations from one choice to the next

  Replication() = default;

  // `room` is what the rows may take of each cache, in units of row size; `seed` decides in which iterations they are
  // chosen, counted from the first one of the stream. They are replicated by `workers`, one at least.
  Replication(std::uint64_t room, std::uint64_t seed, WorkerSet workers, std::uint32_t first_iteration = 0)
      : room_(room), phase_(static_cast<std::uint32_t>((mix64(seed) + first_iteration) % kPeriod)) {
    workers.for_each([&](unsigned j) { members_.push_back(j); });
    workers_ = workers;
  }

  bool active() const { return room_ > 0; }
  WorkerSet workers() const { return workers_; }

  // The worker that pushes the row on behalf of all.
  unsigned home(std::uint64_t id) const { return members_[(mix64(id) >> 32) % members_.size()]; }

  // Whether the row is to join, or has.
  bool wanted(RowNumber row) const { return row < flags_.size() && (flags_[row] & kWanted) != 0; }

  // Whether the row was read of late, or is wanted.
  bool listed(RowNumber row) const { return row < flags_.size() && flags_[row] != 0; }

  // The size of the rows that have joined.
  std::uint64_t filled() const { return filled_; }
  void join(RowNumber row, std::uint32_t size) {
    joined_.push_back(row);
    filled_ += size;
  }

  // Whether the parameter server lacks what a replicated row was trained to.
  bool unpushed(const RowState& row) const { return row.last_use >= flushed_; }
  void flush(std::uint32_t iteration) { flushed_ = iteration; }

  // Counts the reads of a batch that is trained. Row numbers are below `rows`.
  void count(const PreparedBatch& batch, RowNumber rows) {
    heat_.resize(rows);
    flags_.resize(rows);
    for (const RowNumber row : batch.row_numbers) {
      if (flags_[row] & kListed) continue;
      flags_[row] |= kListed;
      listed_.push_back(row);
    }
    for (const BatchIndex x : batch.indices) ++heat_[batch.row_numbers[x]];
  }

  bool due(std::uint32_t iteration) const { return iteration % kPeriod == phase_; }

  // Chooses anew, and returns the rows that leave, ascending by id: they are no members any more.
  std::vector<RowNumber> choose(const StateIndex& index, const RowSizes& sizes) {
    std::vector<Candidate> candidates = this->candidates(index);
    const std::size_t least = *std::min_element(sizes.of_tables().begin(), sizes.of_tables().end());
    const std::size_t most = std::min<std::size_t>(candidates.size(), room_ / least);
    std::partial_sort(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(most), candidates.end());
    for (const RowNumber row : listed_) flags_[row] &= static_cast<std::uint8_t>(~kWanted);
    std::uint64_t left = room_;
    for (std::size_t i = 0; i < most; ++i) {
      const std::uint32_t size = sizes.of_row(candidates[i].id);
      if (size > left) break;
      left -= size;
      flags_[candidates[i].row] |= kWanted;
    }
    cool();
    std::vector<RowNumber> leaving;
    const auto stays = [&](RowNumber row) { return wanted(row); };
    const auto end = std::stable_partition(joined_.begin(), joined_.end(), stays);
    leaving.assign(end, joined_.end());
    joined_.erase(end, joined_.end());
    for (const RowNumber row : leaving) filled_ -= sizes.of_row(index[row].id);
    std::sort(leaving.begin(), leaving.end(), [&](RowNumber a, RowNumber b) { return index[a].id < index[b].id; });
    return leaving;
  }

  // The row has left the table; its number may be given to another one. `size` is that of a row that has joined.
  void forget(RowNumber row, bool has_joined, std::uint32_t size) {
    if (row >= heat_.size()) return;
    heat_[row] = 0;
    flags_[row] &= kListed;
    if (!has_joined) return;
    joined_.erase(std::find(joined_.begin(), joined_.end(), row));
    filled_ -= size;
  }

  // For snapshots. After `restore` no row has joined.
  std::uint32_t flushed() const { return flushed_; }
  const std::vector<std::uint32_t>& heat() const { return heat_; }
  const std::vector<std::uint8_t>& flags() const { return flags_; }
  void restore(std::uint32_t flushed, std::vector<std::uint32_t>&& heat, std::vector<std::uint8_t>&& flags) {
    flushed_ = flushed;
    heat_ = std::move(heat);
    flags_ = std::move(flags);
    flags_.resize(heat_.size());
    listed_.clear();
    for (RowNumber row = 0; row < flags_.size(); ++row) {
      if (flags_[row] & kListed) listed_.push_back(row);
    }
    joined_.clear();
    filled_ = 0;
  }

  std::size_t memory_bytes() const {
    return (heat_.capacity() + listed_.capacity() + joined_.capacity()) * sizeof(std::uint32_t) + flags_.capacity();
  }

 private:
  enum Flag : std::uint8_t { kWanted = 1, kListed = 2 };

  struct Candidate {
    std::uint64_t heat;
    std::uint64_t id;
    RowNumber row;
    bool operator<(const Candidate& other) const { return heat != other.heat ? heat > other.heat : id < other.id; }
  };

  // Rows that are worth it: one that joins moves to every worker. A row that is in stays until another is a quarter
  // hotter, so that rows of like heat do not come and go.
  std::vector<Candidate> candidates(const StateIndex& index) const {
    std::vector<Candidate> candidates;
    for (const RowNumber row : listed_) {
      if (heat_[row] <= members_.size()) continue;
      candidates.push_back({std::uint64_t{heat_[row]} * (wanted(row) ? 5 : 4), index[row].id, row});
    }
    return candidates;
  }

  // A quarter of all reads is forgotten; rows that nobody reads are listed no longer.
  void cool() {
    std::size_t kept = 0;
    for (const RowNumber row : listed_) {
      heat_[row] -= (heat_[row] + 3) / 4;
      if (heat_[row] == 0 && !wanted(row)) {
        flags_[row] = 0;
      } else {
        listed_[kept++] = row;
      }
    }
    listed_.resize(kept);
  }

  std::uint64_t room_ = 0;
  std::uint32_t phase_ = 0;
  WorkerSet workers_{};
  std::vector<unsigned> members_;  // the same, ascending

  std::uint32_t flushed_ = 0;        // the iteration of the last flush
  std::vector<std::uint32_t> heat_;  // by row number, reads of late
  std::vector<std::uint8_t> flags_;  // by row number
  std::vector<RowNumber> listed_;    // rows that have any heat
  std::vector<RowNumber> joined_;    // rows that are replicated
  std::uint64_t filled_ = 0;         // their size
};

}  // namespace esd
