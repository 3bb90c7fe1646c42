// The ids of a batch, and which of them are the same: what there is to know of a batch before any state is looked up.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "engine/memory/column.h"
#include "engine/memory/sort_by_id.h"
#include "engine/rows/index_types.h"

namespace esd {

// The ids of a batch, sample by sample and in each of them field by field.
struct SampleIds {
  const std::uint64_t* ids;  // [N]
  std::size_t samples;
  std::size_t fields;
  const std::uint32_t* lengths;  // [samples, fields], how many ids each field of a sample has; null when all have one

  std::size_t count() const {  // N
    return lengths == nullptr ? samples * fields : std::accumulate(lengths, lengths + samples * fields, std::size_t{0});
  }

  std::size_t count_of(std::size_t sample) const {
    if (lengths == nullptr) return fields;
    const std::uint32_t* const length = lengths + sample * fields;
    return std::accumulate(length, length + fields, std::size_t{0});
  }
};

// The distinct ids have the batch indices 0..distinct()-1 in ascending order, so whatever is listed by batch index is
// listed by id.
struct BatchIds {
  std::size_t samples = 0;                    // k
  std::size_t fields = 0;                     // F
  std::vector<std::uint32_t> begins;          // [k + 1], where in the columns of all ids each sample begins; empty when
                                              // every field of every sample has one id
  std::vector<std::uint32_t> lengths;         // [k, F], how many ids each field of a sample has; empty with `begins`
  std::vector<std::uint64_t> ids;             // [distinct], ascending
  std::vector<BatchIndex> indices;            // [N], of each id, sample by sample
  std::vector<BatchIndex> indices_once;       // [N], as `indices`, with distinct() in place of repeats within a
                                              // sample; empty when no sample repeats an id
  std::vector<std::uint32_t> ids_per_sample;  // [k], distinct ids of each sample

  std::size_t distinct() const { return ids.size(); }

  // Where the ids of a sample begin; those of the last one end at begin(samples).
  std::size_t begin(std::size_t sample) const { return begins.empty() ? sample * fields : begins[sample]; }

  // [N], the batch index of each id that its sample has for the first time, distinct() in place of repeats.
  const BatchIndex* without_repeats() const { return indices_once.empty() ? indices.data() : indices_once.data(); }

  std::size_t memory_bytes() const {
    return ids.capacity() * sizeof(std::uint64_t) + lengths.capacity() * sizeof(std::uint32_t) +
           (begins.capacity() + indices.capacity() + indices_once.capacity() + ids_per_sample.capacity()) *
               sizeof(std::uint32_t);
  }
};

// Finds out which ids are the same; keeps its scratch space from one batch to the next.
class IdFinder {
 public:
  void find(const SampleIds& ids, BatchIds& batch);
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
    std::uint32_t last_sample;  // where the ids of the last sample begin that has this one
  };
  struct Count {
    std::uint32_t distinct, repeats;
  };

  static void find_begins(const SampleIds& ids, BatchIds& batch);
  void find_distinct(const std::uint64_t* ids, BatchIds& batch);
  Count add_sample(const std::uint64_t* ids, std::size_t begin, std::size_t end, BatchIds& batch, Count count);
  void number_ascending(BatchIds& batch);
  void grow_table(Appearance distinct);

  // Knuth's multiplicative hashing: the leading bits of the product are a position in the table.
  static std::uint64_t hash(std::uint64_t id) { return id * 0x9e3779b97f4a7c15ULL; }

  std::vector<Appearance> table_;  // of the ids met so far, hashed by id; 0 where it is free
  unsigned shift_ = 64;            // 64 - log2 of the table's size
  Column<Found> found_;            // by appearance at first, then by id
  Column<std::uint32_t> repeats_;  // positions of ids that their sample has had before
  SorterById<Column<Found>> sorter_;
  std::vector<BatchIndex> batch_indices_;  // by appearance
};

}  // namespace esd
