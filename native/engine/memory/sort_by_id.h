// Sorts records by their 64-bit id in expected linear time, for ids spread over any range.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace esd {

// One pass distributes the records over half as many buckets as there are records, by the leading bits of their
// distance from the lowest id. The buckets hold few records each when ids are hashes, and insertion finishes the order;
// fuller ones are sorted one by one.
template <typename Records>
class SorterById {
  using Record = typename Records::value_type;

 public:
  void sort(Records& records) {
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
    const int bucket_bits = std::min(range_bits, 63 - __builtin_clzll(size));
    const int shift = range_bits - bucket_bits;

    ends_.assign(std::size_t{1} << bucket_bits, 0);
    for (const Record& record : records) ++ends_[(record.id - low) >> shift];
    std::uint32_t begin = 0;
    bool crowded = false;
    for (std::uint32_t& end : ends_) {
      const std::uint32_t count = end;
      crowded |= count > kCrowd;
      end = begin;
      begin += count;
    }
    sorted_.resize(size);
    for (const Record& record : records) sorted_[ends_[(record.id - low) >> shift]++] = record;
    if (crowded) sort_buckets(ascending);
    insert(sorted_);
    records.swap(sorted_);
  }

 private:
  static constexpr std::uint32_t kCrowd = 24;

  template <typename Less>
  void sort_buckets(Less ascending) {
    std::uint32_t begin = 0;
    for (const std::uint32_t end : ends_) {
      if (end - begin > kCrowd) std::sort(sorted_.begin() + begin, sorted_.begin() + end, ascending);
      begin = end;
    }
  }

  static void insert(Records& records) {
    for (std::size_t i = 1; i < records.size(); ++i) {
      if (records[i - 1].id <= records[i].id) continue;
      const Record record = records[i];
      std::size_t to = i;
      for (; to > 0 && records[to - 1].id > record.id; --to) records[to] = records[to - 1];
      records[to] = record;
    }
  }

  std::vector<std::uint32_t> ends_;  // of each bucket in `sorted_`
  Records sorted_;
};

}  // namespace esd
