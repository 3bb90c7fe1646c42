// Bounded staleness: how far copies are behind the parameter server, and what workers keep to themselves (HET).
//
// HET's clock counts updates: one worker's training of a row in one iteration is one. A worker steps its copy at once and
// adds its gradients up, until it pushes their sum. The sums that are pushed in one iteration make one version of the row.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/workers.h"
#include "engine/rows/index_types.h"

namespace esd {

struct StalenessBounds {
  static constexpr std::uint32_t kMost = 10000;

  std::uint32_t pull = 0;  // updates that the parameter server has, and a copy that is trained on may lack
  std::uint32_t push = 0;  // updates of a row that a worker may keep to itself
};

class Staleness {
 public:
  // `additive` tells of each table whether steps with two gradients come to one step with their sum.
  Staleness(unsigned workers, StalenessBounds bounds, std::vector<bool> additive)
      : bounds_(bounds), additive_(std::move(additive)), copies_(workers) {}

  // Whether what an iteration trains is pushed with the next plan.
  bool pushes_at_once() const { return bounds_.push == 0; }

  void grow(RowNumber rows) {
    if (rows > rows_.size()) rows_.resize(rows);
  }
  void grow(unsigned worker, SlotIndex slots) {
    if (slots > copies_[worker].size()) copies_[worker].resize(slots);
  }

  // Whether a copy is good enough to be trained on, when everything that is pushed by now has arrived.
  bool fresh(unsigned worker, SlotIndex slot, RowNumber row) const {
    const Copy& copy = copies_[worker][slot];
    return !copy.spent && behind(copy, rows_[row]) <= bounds_.pull;
  }
  bool unpushed(unsigned worker, SlotIndex slot) const {
    return slot < copies_[worker].size() && copies_[worker][slot].own > 0;
  }
  bool due(unsigned worker, SlotIndex slot) const { return copies_[worker][slot].own > bounds_.push; }

  // The worker pushes what it has of its own. `last_use` is the last iteration in which anybody trained the row: its step
  // is taken, so the copy is as the server's only if its one update is of that iteration.
  void push(unsigned worker, SlotIndex slot, RowNumber number, TableNumber table, std::uint32_t last_use) {
    Copy& copy = copies_[worker][slot];
    Row& row = rows_[number];
    if (row.pushers.empty()) pushed_.push_back(number);
    row.pushers.add(static_cast<int>(worker));
    row.merging += copy.own;
    copy.base += copy.own;
    copy.mixed |= copy.own > 1 || copy.trained_in != last_use;
    copy.spent |= copy.mixed && !additive_[table];
    copy.own = 0;
  }

  // The rows of which something is pushed, until `end_merge`; and by whom.
  const std::vector<RowNumber>& pushed() const { return pushed_; }
  WorkerSet pushers(RowNumber row) const { return rows_[row].pushers; }

  // What is pushed of a row becomes its next version at the parameter server.
  void merge() {
    for (const RowNumber number : pushed_) {
      Row& row = rows_[number];
      ++row.version;
      row.merged += row.merging;
      row.merging = 0;
    }
  }
  void end_merge() {
    for (const RowNumber number : pushed_) rows_[number].pushers = {};
    pushed_.clear();
  }

  // A worker whose push is merged knows the version that it made.
  void name(unsigned worker, SlotIndex slot, RowNumber row) { copies_[worker][slot].version = rows_[row].version; }

  // The version at the parameter server; and the one that a copy was pulled at, or that its last push has made.
  std::uint32_t version(RowNumber row) const { return rows_[row].version; }
  std::uint32_t version(unsigned worker, SlotIndex slot) const { return copies_[worker][slot].version; }

  void pull(unsigned worker, SlotIndex slot, RowNumber number) {
    copies_[worker][slot] = {rows_[number].merged, rows_[number].version, 0, 0, false, false};
  }

  // How many updates a copy lacks.
  std::uint32_t missing(unsigned worker, SlotIndex slot, RowNumber row) const {
    const Copy& copy = copies_[worker][slot];
    return rows_[row].trained - copy.base - copy.own;
  }

  void train(unsigned worker, SlotIndex slot, RowNumber row, std::uint32_t iteration) {
    ++rows_[row].trained;
    Copy& copy = copies_[worker][slot];
    ++copy.own;
    copy.trained_in = iteration;
  }

  // Nobody keeps anything to himself: copies that differ from the parameter server's must be pulled to be used.
  void settle(unsigned worker, SlotIndex slot, RowNumber row) {
    Copy& copy = copies_[worker][slot];
    copy.spent |= copy.mixed || behind(copy, rows_[row]) > 0;
  }

  // Rows leave the table. `rows` ascend.
  void forget(const std::vector<RowNumber>& rows) {
    const auto leaves = [&](RowNumber row) { return std::binary_search(rows.begin(), rows.end(), row); };
    pushed_.erase(std::remove_if(pushed_.begin(), pushed_.end(), leaves), pushed_.end());
    for (const RowNumber row : rows) {
      if (row < rows_.size()) rows_[row] = {};
    }
  }

  // No worker has a copy of the row, and all that was pushed of it is merged.
  void release(RowNumber row) {
    if (row < rows_.size()) rows_[row] = {};
  }

  // A row, and a copy of it, after a flush.
  void restore(RowNumber row, std::uint32_t version) { rows_[row].version = version; }
  void restore(unsigned worker, SlotIndex slot, RowNumber row, bool latest) {
    pull(worker, slot, row);
    copies_[worker][slot].spent = !latest;
  }

  void clear() {
    rows_.clear();
    for (std::vector<Copy>& copies : copies_) copies.clear();
    pushed_.clear();
  }

  std::size_t memory_bytes() const {
    std::size_t bytes = rows_.capacity() * sizeof(Row) + pushed_.capacity() * sizeof(RowNumber);
    for (const std::vector<Copy>& copies : copies_) bytes += copies.capacity() * sizeof(Copy);
    return bytes;
  }

 private:
  // Counts of updates wrap around; their differences are small.
  struct Row {
    WorkerSet pushers{};
    std::uint32_t trained = 0;  // updates by now
    std::uint32_t merged = 0;   // of these, in the version of the parameter server
    std::uint32_t merging = 0;  // and those that are pushed
    std::uint32_t version = 0;
  };
  struct Copy {
    std::uint32_t base = 0;        // updates that the parameter server has, or is sent, and the copy contains
    std::uint32_t version = 0;     // that it was pulled at, or that its last push has made
    std::uint32_t trained_in = 0;  // the iteration of its last own update
    std::uint16_t own = 0;         // own updates that are not pushed
    bool mixed = false;            // steps were taken here that the server takes as one, or under another number
    bool spent = false;            // it must be pulled to be used, however few updates it lacks
  };

  static std::uint32_t behind(const Copy& copy, const Row& row) { return row.merged + row.merging - copy.base; }

  StalenessBounds bounds_;
  std::vector<bool> additive_;
  std::vector<Row> rows_;                  // by row number
  std::vector<std::vector<Copy>> copies_;  // by worker and slot
  std::vector<RowNumber> pushed_;
};

}  // namespace esd
