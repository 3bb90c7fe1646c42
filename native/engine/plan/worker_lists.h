// What one worker does in an iteration, as lists, and how they become columns of its plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/batch/prepared_batch.h"
#include "engine/batch/trainers.h"
#include "engine/memory/draft_list.h"
#include "engine/plan/plan.h"
#include "engine/rows/copies.h"
#include "engine/rows/copy_directory.h"

namespace esd {

// A row that a worker needs.
struct Need {
  std::uint32_t number;
  std::uint32_t slot;  // where it is cached, kNone if it is not
  std::uint16_t pulled, early;
};

// A copy whose row, or partial gradient, others need.
struct Push {
  std::uint32_t number;
  std::uint32_t slot;
};

// Where there are two lists, [1] is of rows that may move early.
class WorkerTurn {
 public:
  using Numbers = Column<std::uint32_t>;

  void clear();

  // Append to the plan what the lists say, before any state of the batch changes. The first also lists what is not cached;
  // its slots are still to be written.
  void write_needs(const PreparedBatch& batch, const Trainers& trainers, Arena& arena, WorkerPlan& plan);
  void write_pushes(const PreparedBatch& batch, const CopyDirectory& directory, Arena& arena, WorkerPlan& plan) const;

  // Append the rest when the rows have their slots; `place_in_needs` is scratch space.
  void write_pulls(const PreparedBatch& batch, Arena& arena, WorkerPlan& plan) const;
  void write_samples(const std::vector<std::uint32_t>& samples, const PreparedBatch& batch, Arena& arena,
                     WorkerPlan& plan, std::vector<std::uint32_t>& place_in_needs) const;

  // Missing rows from place `from` of their list on cannot be pulled early.
  void delay_pulls(std::size_t from);

  // Of the rows at some places in `needs` together.
  std::uint64_t size_of(const Numbers& places, const PreparedBatch& batch) const;

  // By row, ascending by its number.
  DraftList<Need> needs;            // U_j
  DraftList<std::uint32_t> losses;  // copies whose latest value, or partial gradient, it has and will not have
  DraftList<Push> pushes[2][2];     // [1] of partial gradients

  Numbers found;                 // slots of needs that are cached
  Numbers missing[2], pulls[2];  // places in `needs` of rows that are not cached, and of rows to pull
};

}  // namespace esd
