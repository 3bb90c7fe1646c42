// Sorts records by their 64-bit id in expected linear time, for ids spread over any range.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace esd {

// One pass distributes the records over as many buckets as there are records, by the leading bits of their place in
// the range of ids; the buckets hold a record or two each when ids are hashes, and std::sort bounds the rest.
template <typename Record>
class SorterById {
 public:
  void sort(std::vector<Record>& records) {
    const auto ascending = [](const Record& a, const Record& b) { return a.id < b.id; };
    const std::size_t size = records.size();
    if (size < 64) return std::sort(records.begin(), records.end(), ascending);

    std::uint64_t low = records[0].id, high = records[0].id;
    for (const Record& record : records) {
      low = std::min(low, record.id);
      high = std::max(high, record.id);
    }
    if (low == high) return;
    const int range_bits = 64 - __builtin_clzll(high - low);
    const int bucket_bits = std::min(range_bits, 64 - __builtin_clzll(size));
    const int shift = range_bits - bucket_bits;

    ends_.assign((std::size_t{1} << bucket_bits) + 1, 0);
    for (const Record& record : records) ++ends_[((record.id - low) >> shift) + 1];
    for (std::size_t b = 1; b < ends_.size(); ++b) ends_[b] += ends_[b - 1];
    sorted_.resize(size);
    for (const Record& record : records) sorted_[ends_[(record.id - low) >> shift]++] = record;
    for (std::size_t b = 0, begin = 0; b + 1 < ends_.size(); begin = ends_[b++]) {
      if (ends_[b] - begin > 1) std::sort(sorted_.begin() + begin, sorted_.begin() + ends_[b], ascending);
    }
    records.swap(sorted_);
  }

 private:
  std::vector<std::uint32_t> ends_;  // of the buckets
  std::vector<Record> sorted_;
};

}  // namespace esd
