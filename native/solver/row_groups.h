// Groups of rows with the same tight workers, which are interchangeable in the flow.
//
// Thousands of rows form a few hundred groups, so the flow works on groups and distributes their rows at the end.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "common/mix64.h"

namespace esd {

template <typename Set>
class RowGroups {
 public:
  // Groups the rows by `tight` [rows]. The groups are in order of first appearance.
  void build(const Set* tight, int rows) {
    workers.clear();
    sizes.clear();
    of_row.resize(rows);
    if (static_cast<int>(slots_.size()) < 2 * rows) {
      bits_ = 6;
      while ((1 << bits_) < 2 * rows) ++bits_;
      slots_.assign(std::size_t{1} << bits_, kFree);
    } else {
      std::fill(slots_.begin(), slots_.end(), kFree);
    }
    for (int i = 0; i < rows; ++i) {
      const int group = find_or_add(tight[i]);
      of_row[i] = group;
      ++sizes[group];
    }
  }

  // Puts the groups in ascending order of their workers' bits, which does not depend on the order of the rows.
  void sort() {
    std::vector<int> order(workers.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [this](int a, int b) { return workers[a].bits < workers[b].bits; });
    std::vector<int> rank(order.size()), sorted_sizes(order.size());
    std::vector<Set> sorted_workers(order.size());
    for (std::size_t r = 0; r < order.size(); ++r) {
      const int group = order[r];
      rank[group] = static_cast<int>(r);
      sorted_workers[r] = workers[group];
      sorted_sizes[r] = sizes[group];
    }
    workers.swap(sorted_workers);
    sizes.swap(sorted_sizes);
    for (int& group : of_row) group = rank[group];
  }

  int count() const { return static_cast<int>(workers.size()); }

  std::vector<Set> workers;  // [count], the tight workers of each group
  std::vector<int> sizes;    // [count], the rows of each group
  std::vector<int> of_row;   // [rows], the group of each row

 private:
  static constexpr int kFree = -1;

  int find_or_add(Set tight) {
    const std::size_t last = (std::size_t{1} << bits_) - 1;
    auto hashed = static_cast<std::uint64_t>(tight.bits);
    if constexpr (sizeof tight > sizeof hashed) hashed ^= mix64(static_cast<std::uint64_t>(tight.bits >> 64));
    std::size_t slot = (hashed * 0x9e3779b97f4a7c15ULL) >> (64 - bits_);
    while (slots_[slot] != kFree && workers[slots_[slot]] != tight) slot = (slot + 1) & last;
    if (slots_[slot] == kFree) {
      slots_[slot] = count();
      workers.push_back(tight);
      sizes.push_back(0);
    }
    return slots_[slot];
  }

  std::vector<int> slots_;  // an open-addressing table of groups: a power of two, at most half full
  int bits_ = 0;
};

}  // namespace esd
