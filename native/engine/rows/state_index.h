// The state index: from uint64 ids to row states, for tens of millions of ids.
//
// Row states lie in pages and are named by row numbers. A row keeps its number as long as it stays in the table; the
// number of a row that has left is given to another one. A hash table finds the number of an id. Its buckets are cache
// lines,
//
//   byte 0               12     13       14       16                     64
//        | 12 tags of 8  | size | passed | unused | 12 row numbers of 32 |   bits
//
// A row that finds its bucket full goes to the next one, and the bucket counts the rows that have passed it. A look-up
// ends where none has. The table is cut into segments that grow independently, each at a load of its own: a growth moves some thousand numbers,
// and growths are spread evenly over time, so that no insertion stalls. An id takes about 41 bytes, 32 of them its
// state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "common/mix64.h"
#include "engine/rows/index_types.h"
#include "engine/rows/row_state.h"

namespace esd {

class StateIndex {
  struct Free {
    void operator()(RowState* page) const { std::free(page); }
  };
  using Page = std::unique_ptr<RowState[], Free>;

 public:
  StateIndex();

  RowState& operator[](RowNumber row) { return pages_[row >> kPageBits][row & (kPageRows - 1)]; }
  const RowState& operator[](RowNumber row) const { return pages_[row >> kPageBits][row & (kPageRows - 1)]; }

  [[gnu::always_inline]] void prefetch(RowNumber row) const { __builtin_prefetch(&(*this)[row], 1); }

  // The rows as they can be found until one is added. A loop that writes keeps this in registers, where it would read the
  // index again after each store.
  class Rows {
   public:
    RowState& operator[](RowNumber row) const { return pages_[row >> kPageBits][row & (kPageRows - 1)]; }

   private:
    friend class StateIndex;
    explicit Rows(const Page* pages) : pages_(pages) {}
    const Page* pages_;
  };
  Rows rows() { return Rows(pages_.data()); }

  [[gnu::always_inline]] void prefetch_bucket(std::uint64_t id) const {
    __builtin_prefetch(first_bucket(mix64(id)), 1);
  }

  // The row number of an id; kNoRow if it is unseen.
  RowNumber find(std::uint64_t id) const;

  // The row number of an id; an unseen one is appended as a clean row at version 0.
  RowNumber find_or_add(std::uint64_t id);

  // Moves the states of distinct ids to the dense `states` [count] and leaves references behind (kInBatch); fills
  // `rows` [count] with their numbers. Unseen ids are appended first, in order.
  void check_out(const std::uint64_t* ids, std::size_t count, RowNumber* rows, RowState* states);

  // The same for rows whose numbers are known; and the way back.
  void check_out(const std::vector<RowNumber>& rows, std::vector<RowState>& states);
  void check_in(const std::vector<RowNumber>& rows, const std::vector<RowState>& states);

  // Takes a row out that is not checked out.
  void forget(RowNumber row);

  RowNumber size() const { return size_; }  // row numbers are below it, some of them unused
  std::uint32_t ids() const { return size_ - static_cast<std::uint32_t>(unused_.size()); }

  // For snapshots: the row numbers without a row (kUnused), in the order in which they were given up. An index is
  // rebuilt by adding its rows by number, ascending, and a gap for each number without one.
  const std::vector<RowNumber>& unused() const { return unused_; }
  void add_gap();
  void restore_unused(std::vector<RowNumber>&& unused) { unused_ = std::move(unused); }

  std::size_t memory_bytes() const;

 private:
  static constexpr unsigned kPageBits = 16;
  static constexpr RowNumber kPageRows = 1u << kPageBits;  // 2 MiB, one huge page
  static constexpr unsigned kSegmentBits = 12;
  static constexpr unsigned kBucketRows = 12;
  static constexpr std::uint8_t kManyPassed = 127;

  struct alignas(64) Bucket {
    std::uint8_t tags[kBucketRows];  // bits of the hash, the top bit always set; filled from the front
    std::uint8_t size;
    std::uint8_t passed;  // rows that went on to the next bucket; kManyPassed: it has been so many, and is not counted
    std::uint8_t unused[2];
    RowNumber rows[kBucketRows];
  };
  static_assert(sizeof(Bucket) == 64);

  struct Segment {
    std::unique_ptr<Bucket[]> buckets;
    std::uint32_t bucket_count = 0;
    std::uint32_t size = 0;
  };

  static unsigned matches(const Bucket& bucket, std::uint8_t tag);
  static void add(Bucket* buckets, std::uint32_t count, std::uint64_t hash, RowNumber row);
  const Bucket* first_bucket(std::uint64_t hash) const;  // nullptr when its segment is empty
  RowNumber find(std::uint64_t id, std::uint64_t hash) const;
  RowNumber find_or_add(std::uint64_t id, std::uint64_t hash);
  bool holds(RowNumber row, std::uint64_t id) const {
    return (*this)[row].id == id && (*this)[row].location != kUnused;
  }
  void prefetch_buckets(const std::uint64_t* ids, std::size_t count, std::uint64_t* hashes) const;
  void guess_rows(const std::uint64_t* hashes, std::size_t count, RowNumber* rows) const;
  void check_out(RowNumber number, std::size_t batch_index, RowState& state) {
    RowState& row = (*this)[number];
    state = row;
    row.location = kInBatch;
    row.slot = static_cast<BatchIndex>(batch_index);
  }
  RowNumber append(std::uint64_t id);
  RowNumber next_number();
  void grow(std::size_t segment_number);

  std::vector<Page> pages_;
  std::vector<Segment> segments_;
  RowNumber size_ = 0;
  std::vector<RowNumber> unused_;
  std::size_t table_bytes_ = 0;
};

}  // namespace esd
