// A batch with every id looked up once: everything that is computed about a batch works on small dense numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/memory/column.h"
#include "engine/memory/sort_by_id.h"
#include "engine/rows/index_types.h"
#include "engine/rows/row_state.h"
#include "engine/rows/state_index.h"

namespace esd {

// The distinct ids have the batch indices 0..distinct()-1 in ascending order, so whatever is listed by batch index is
// listed by id.
struct PreparedBatch {
  std::size_t samples = 0;                    // k
  std::size_t fields = 0;                     // F
  std::vector<std::uint64_t> ids;             // [distinct], ascending
  std::vector<RowNumber> row_numbers;         // [distinct], in the state index
  std::vector<RowState> states;               // [distinct], checked out of the state index
  std::vector<BatchIndex> indices;            // [k, F], of each id
  std::vector<BatchIndex> indices_once;       // [k, F], as `indices`, with distinct() in place of repeats within a
                                              // sample; empty when no sample repeats an id
  std::vector<std::uint32_t> ids_per_sample;  // [k], distinct ids of each sample
  std::vector<std::uint32_t> sizes;           // [distinct], of the rows; empty when there is one table
  std::uint64_t sample_size = 0;              // of the rows of a sample together, at most; repeats count

  std::size_t distinct() const { return ids.size(); }
  std::uint32_t size(BatchIndex x) const { return sizes.empty() ? 1 : sizes[x]; }

  // [k, F], the batch index of each id that its sample has for the first time, distinct() in place of repeats.
  const BatchIndex* without_repeats() const { return indices_once.empty() ? indices.data() : indices_once.data(); }

  std::size_t memory_bytes() const {
    return ids.capacity() * sizeof(std::uint64_t) + states.capacity() * sizeof(RowState) +
           (row_numbers.capacity() + indices.capacity() + indices_once.capacity() + ids_per_sample.capacity() +
            sizes.capacity()) *
               sizeof(std::uint32_t);
  }
};

// Prepares batches; keeps its scratch space from one to the next.
class BatchPreparer {
 public:
  // `ids` are [samples, fields]. Unseen ids are added to the index.
  void prepare(const std::uint64_t* ids, std::size_t samples, std::size_t fields, StateIndex& index,
               PreparedBatch& batch);
  std::size_t memory_bytes() const {
    return (table_.capacity() + repeats_.capacity() + batch_indices_.capacity()) * sizeof(std::uint32_t) +
           2 * found_.capacity() * sizeof(Found);
  }

 private:
  // Ids are counted from 1 on as they appear in the batch for the first time.
  using Appearance = std::uint32_t;

  struct Found {
    std::uint64_t id;
    Appearance appearance;
    std::uint32_t last_sample;  // where in [k, F] the last sample begins that has the id
  };
  struct Count {
    std::uint32_t distinct, repeats;
  };

  void find_distinct(const std::uint64_t* ids, PreparedBatch& batch);
  Count add_sample(const std::uint64_t* ids, std::size_t begin, PreparedBatch& batch, Count count);
  void number_ascending(PreparedBatch& batch);
  void grow_table(Appearance distinct);

  // Knuth's multiplicative hashing: the leading bits of the product are a position in the table.
  static std::uint64_t hash(std::uint64_t id) { return id * 0x9e3779b97f4a7c15ULL; }

  std::vector<Appearance> table_;  // of the ids met so far, hashed by id; 0 where it is free
  unsigned shift_ = 64;            // 64 - log2 of the table's size
  Column<Found> found_;            // by appearance at first, then by id
  Column<std::uint32_t> repeats_;  // positions in [k, F] of ids that their sample has had before
  SorterById<Column<Found>> sorter_;
  std::vector<BatchIndex> batch_indices_;  // by appearance
};

}  // namespace esd
