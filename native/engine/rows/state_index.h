// The state index: uint64 id -> RowState, for tens of millions of ids.
//
// Rows live in pages and are named by a uint32 row number that never changes; the number of a row that has left is
// given to another one. A hash table of
// 64-byte buckets (12 one-byte tags and 12 row numbers, one cache line) finds the number of an id. The table is
// cut into segments that grow independently, each at its own loads: a growth moves some thousand
// numbers, and growths are spread evenly over time, so that no insertion stalls. About 41 bytes per id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "engine/memory/huge_pages.h"
#include "engine/rows/row_state.h"

namespace esd {

class StateIndex {
 public:
  StateIndex();

  // The row number of an id; an unseen one is appended as a clean row at version 0.
  std::uint32_t find_or_add(std::uint64_t id);

  // Moves the states of distinct ids to dense `states` and leaves references behind (RowPlace::kInBatch); unseen ids
  // are appended first, in order.
  void check_out(const std::uint64_t* ids, std::size_t count, std::uint32_t* rows, RowState* states);

  RowState& operator[](std::uint32_t row) { return pages_[row >> kPageBits][row & (kPageRows - 1)]; }
  const RowState& operator[](std::uint32_t row) const { return pages_[row >> kPageBits][row & (kPageRows - 1)]; }

  // The same for known rows; and back.
  void check_out(const std::vector<std::uint32_t>& rows, std::vector<RowState>& states);
  void check_in(const std::vector<std::uint32_t>& rows, const std::vector<RowState>& states);
  // Forgets a row that is not checked out.
  void remove(std::uint32_t row);

  [[gnu::always_inline]] void prefetch(std::uint32_t row) const { __builtin_prefetch(&(*this)[row], 1); }

  std::uint32_t size() const { return size_; }  // row numbers, the unused ones included
  std::uint32_t ids() const { return size_ - static_cast<std::uint32_t>(unused_.size()); }

  // Snapshot: row numbers without a row (kUnused), in the order in which they were given up. An index is rebuilt by
  // adding its rows by number, ascending, and a gap for each number without one.
  const std::vector<std::uint32_t>& unused() const { return unused_; }
  void add_gap();
  void restore_unused(std::vector<std::uint32_t>&& unused) { unused_ = std::move(unused); }

  std::size_t memory_bytes() const;

 private:
  static constexpr unsigned kPageBits = 16;
  static constexpr std::uint32_t kPageRows = 1u << kPageBits;  // 2 MiB, one huge page
  static constexpr unsigned kSegmentBits = 12;
  static constexpr unsigned kBucketRows = 12;

  struct alignas(64) Bucket {
    std::uint8_t tags[kBucketRows];  // hash bits, the top bit always set; filled from the front
    std::uint8_t size;
    std::uint8_t unused[3];
    std::uint32_t rows[kBucketRows];
  };
  static_assert(sizeof(Bucket) == 64);

  struct Segment {
    std::unique_ptr<Bucket[]> buckets;
    std::uint32_t bucket_count = 0;
    std::uint32_t size = 0;
  };

  struct Free {
    void operator()(RowState* page) const { std::free(page); }
  };

  static unsigned matches(const Bucket& bucket, std::uint8_t tag);
  const Bucket* first_bucket(std::uint64_t hash) const;  // nullptr when its segment is empty
  std::uint32_t find_or_add(std::uint64_t id, std::uint64_t hash);
  bool holds(std::uint32_t row, std::uint64_t id) const {
    return (*this)[row].id == id && (*this)[row].place != kUnused;
  }
  void prefetch_buckets(const std::uint64_t* ids, std::size_t count, std::uint64_t* hashes) const;
  void guess_rows(const std::uint64_t* hashes, std::size_t count, std::uint32_t* rows) const;
  void check_out(std::uint32_t number, std::size_t place_in_batch, RowState& state) {
    RowState& row = (*this)[number];
    state = row;
    row.place = kInBatch;
    row.slot = static_cast<std::uint32_t>(place_in_batch);
  }
  std::uint32_t append(std::uint64_t id);
  std::uint32_t next_number();
  void close_gap(const Segment& segment, std::uint32_t bucket, unsigned place);
  void grow(std::size_t segment_number);

  std::vector<std::unique_ptr<RowState[], Free>> pages_;
  std::vector<Segment> segments_;
  std::uint32_t size_ = 0;
  std::vector<std::uint32_t> unused_;
  std::size_t table_bytes_ = 0;
};

}  // namespace esd
