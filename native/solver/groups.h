// Rows with the same set of tight workers are interchangeable for the flow: a few hundred groups for thousands of rows.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "hd.h"

namespace esd {

template <class Mask>
class Groups {
 public:
  // Groups are in order of first appearance.
  void build(const Mask* tight, int rows) {
    masks.clear();
    sizes.clear();
    of_row.resize(static_cast<std::size_t>(rows));
    if (static_cast<int>(slots_.size()) < 2 * rows) {
      bits_ = 6;
      while ((1 << bits_) < 2 * rows) ++bits_;
      slots_.assign(std::size_t{1} << bits_, kFree);
    } else {
      std::fill(slots_.begin(), slots_.end(), kFree);
    }
    for (int i = 0; i < rows; ++i) {
      const int group = find(tight[i]);
      of_row[static_cast<std::size_t>(i)] = group;
      ++sizes[static_cast<std::size_t>(group)];
    }
  }

  // Puts the groups in ascending order of their masks, which does not depend on the order of the rows.
  void sort() {
    std::vector<int> order(masks.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [this](int a, int b) { return mask(a) < mask(b); });
    std::vector<int> rank(order.size()), sorted_sizes(order.size());
    std::vector<Mask> sorted_masks(order.size());
    for (std::size_t r = 0; r < order.size(); ++r) {
      const auto g = static_cast<std::size_t>(order[r]);
      rank[g] = static_cast<int>(r);
      sorted_masks[r] = masks[g];
      sorted_sizes[r] = sizes[g];
    }
    masks.swap(sorted_masks);
    sizes.swap(sorted_sizes);
    for (int& group : of_row) group = rank[static_cast<std::size_t>(group)];
  }

  int count() const { return static_cast<int>(masks.size()); }

  std::vector<Mask> masks;  // [count]
  std::vector<int> sizes;   // [count], rows of each group
  std::vector<int> of_row;  // [rows]

 private:
  static constexpr int kFree = -1;

  Mask mask(int group) const { return masks[static_cast<std::size_t>(group)]; }

  int find(Mask wanted) {
    const std::size_t last = (std::size_t{1} << bits_) - 1;
    std::size_t slot =
        static_cast<std::size_t>((static_cast<std::uint64_t>(wanted) * 0x9e3779b97f4a7c15ULL) >> (64 - bits_));
    while (slots_[slot] != kFree && mask(slots_[slot]) != wanted) slot = (slot + 1) & last;
    if (slots_[slot] == kFree) {
      slots_[slot] = count();
      masks.push_back(wanted);
      sizes.push_back(0);
    }
    return slots_[slot];
  }

  std::vector<int> slots_;  // open addressing, a power of two, at most half full
  int bits_ = 0;
};

}  // namespace esd
