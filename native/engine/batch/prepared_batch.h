// A batch with every id resolved once: everything that is computed about a batch works on small dense numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/memory/column.h"
#include "engine/memory/sort_by_id.h"
#include "engine/rows/state_index.h"

namespace esd {

// Distinct ids are numbered 0..distinct()-1 in ascending order, so whatever is listed by number is listed by id.
struct PreparedBatch {
  std::size_t samples = 0;                   // k
  std::size_t fields = 0;                    // F
  std::vector<std::uint64_t> ids;            // [distinct], ascending
  std::vector<std::uint32_t> rows;           // [distinct], row numbers in the state index
  std::vector<RowState> states;              // [distinct], checked out of the state index
  std::vector<std::uint32_t> numbers;        // [k, F], number of each id
  std::vector<std::uint32_t> once;           // [k, F], as `numbers`, repeats within a sample replaced by distinct();
                                             // empty when no sample repeats an id
  std::vector<std::uint32_t> unique_fields;  // [k], distinct ids of each sample
  std::vector<std::uint32_t> sizes;          // [distinct], of the rows; empty when all have size 1
  std::uint64_t sample_size = 0;             // of the rows of one sample that repeats no id

  std::size_t distinct() const { return ids.size(); }
  std::uint32_t size(std::size_t number) const { return sizes.empty() ? 1 : sizes[number]; }
  const std::uint32_t* numbers_once() const { return once.empty() ? numbers.data() : once.data(); }
  std::size_t memory_bytes() const {
    return ids.capacity() * sizeof(std::uint64_t) + states.capacity() * sizeof(RowState) +
           (rows.capacity() + numbers.capacity() + once.capacity() + unique_fields.capacity() + sizes.capacity()) *
               sizeof(std::uint32_t);
  }
};

// Prepares batches; keeps its scratch space from one to the next.
class BatchPreparer {
 public:
  void prepare(const std::uint64_t* ids, std::size_t samples, std::size_t fields, StateIndex& index,
               PreparedBatch& batch);
  std::size_t memory_bytes() const {
    return (table_.capacity() + repeats_.capacity() + rank_.capacity()) * sizeof(std::uint32_t) +
           2 * found_.capacity() * sizeof(Found);
  }

 private:
  struct Found {
    std::uint64_t id;
    std::uint32_t number;       // by first appearance, from 1 on
    std::uint32_t last_sample;  // where in [k, F] the last begins that has the id
  };
  struct Count {
    std::uint32_t distinct, repeats;
  };

  void find_distinct(const std::uint64_t* ids, PreparedBatch& batch);
  Count number_sample(const std::uint64_t* ids, std::size_t begin, PreparedBatch& batch, Count count);
  void renumber_ascending(PreparedBatch& batch);
  void grow_table(std::uint32_t distinct);

  // The leading bits of the product are a place in the table: Knuth's multiplicative hashing.
  static std::uint64_t hash(std::uint64_t id) { return id * 0x9e3779b97f4a7c15ULL; }

  std::vector<std::uint32_t> table_;  // numbers of the ids met so far, hashed by id; 0 in a free place
  unsigned shift_ = 64;               // 64 - log2 of the table's size
  Column<Found> found_;               // by number at first, then by id
  Column<std::uint32_t> repeats_;     // positions in [k, F] of ids that their sample has before
  SorterById<Column<Found>> sorter_;
  std::vector<std::uint32_t> rank_;  // by number
};

}  // namespace esd
