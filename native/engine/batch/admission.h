// Admission: an id is trained from its N-th iteration on, which is the N-th that has it, with N of its table.
//
// Iterations are counted in a count-min sketch of fixed size (Cormode and Muthukrishnan, "An Improved Data Stream
// Summary: The Count-Min Sketch and its Applications", J. Algorithms 2005) with conservative update (Estan and Varghese,
// SIGCOMM 2002): an id has one cell in each of the sketch's rows, counts as often as its lowest cell says, and raises
// only the cells that are below its new count. So an id never counts too few iterations; it counts too many where other
// ids have raised all of its cells, and is then admitted earlier. Which ids are admitted follows from the stream and the
// seed alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "engine/batch/batch_ids.h"

namespace esd {

// The ids of a batch that are not admitted: what their samples read of them is their initial rows.
struct InitialIds {
  static constexpr BatchIndex kAdmitted = UINT32_MAX;

  BatchIds batch;                  // all ids of the batch
  std::vector<std::uint64_t> ids;  // [v], those that are not admitted, ascending
  std::vector<BatchIndex> places;  // [distinct of the batch], the place of each id among these, or kAdmitted
};

// A batch divided into the ids that are trained and those that are not.
struct AdmittedIds {
  std::vector<std::uint64_t> ids;      // [N], the trained ids of all samples, sample by sample
  std::vector<std::uint32_t> lengths;  // [k, F], how many of them each field of a sample has
  InitialIds initial;
  std::size_t newly = 0;  // how many ids are admitted with this batch
};

class Admission {
 public:
  static constexpr std::size_t kBytes = std::size_t{1} << 26;
  static constexpr std::size_t kWords = kBytes / sizeof(std::uint64_t);
  static constexpr std::size_t kRows = 4;
  static constexpr std::uint32_t kMostAfter = 255;

  // `afters` is N, by table: 1 admits an id at once, and its table is not counted. Throws std::invalid_argument when
  // there is no table, or one with another N than 1..kMostAfter, or one alone that needs no admission.
  Admission(std::vector<std::uint32_t> afters, std::uint64_t seed);

  // Counts an iteration, and divides its ids. Throws std::invalid_argument when an id is of a table that is not there.
  void count(const SampleIds& ids, AdmittedIds& divided);

  // Divides the ids of a later iteration as they would be if it were the next, and counts nothing.
  void expect(const SampleIds& ids, AdmittedIds& divided);

  // The share of ids never seen before that the sketch would admit in their first iteration, of the table with the
  // lowest N above 1. 0 as long as there are few ids.
  double error() const;

  // The state: the cells, [kWords], and in how many of each row's cells a first iteration would be the N-th.
  std::uint64_t* words() { return words_.get(); }
  std::array<std::uint64_t, kRows>& full() { return full_; }

 private:
  using Cells = std::array<std::uint32_t, kRows>;
  struct Free {
    void operator()(std::uint64_t* words) const { std::free(words); }
  };

  std::uint32_t after(std::uint64_t id) const { return afters_.size() == 1 ? afters_[0] : afters_[id >> 56]; }
  Cells cells_of(std::uint64_t id) const;
  std::uint32_t read(std::uint32_t cell) const;
  std::uint32_t lowest(const Cells& cells) const;
  void raise(const Cells& cells, std::uint32_t count);
  void find(const SampleIds& ids, BatchIds& batch);
  template <typename Admits>
  void divide(const SampleIds& ids, AdmittedIds& divided, Admits admits);

  const std::vector<std::uint32_t> afters_;
  const std::uint64_t seed_;
  std::uint32_t lowest_after_ = 0;                // the lowest N above 1
  unsigned bits_ = 2;                             // of a cell
  std::uint32_t row_cells_ = 0;                   // cells of a row of the sketch, a power of two
  std::unique_ptr<std::uint64_t[], Free> words_;  // cleared by the system, page by page, as they are first touched
  std::array<std::uint64_t, kRows> full_{};
  IdFinder finder_;
  std::vector<Cells> cells_;  // of the ids of a batch
};

}  // namespace esd
