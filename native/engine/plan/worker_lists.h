// What one worker does in an iteration, as lists, and how they become columns of its plan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/batch/prepared_batch.h"
#include "engine/batch/row_sizes.h"
#include "engine/batch/trainers.h"
#include "engine/memory/column.h"
#include "engine/memory/draft_list.h"
#include "engine/plan/plan.h"
#include "engine/rows/copy_directory.h"
#include "engine/rows/index_types.h"

namespace esd {

// A row that a worker needs.
struct Need {
  BatchIndex row;
  SlotIndex slot;  // where it is cached, kNoSlot if it is not
  std::uint16_t pulled;
  Timing timing;
};

// A copy whose row, or partial gradient, others need.
struct Push {
  BatchIndex row;
  SlotIndex slot;
};

// What a push carries.
enum Payload : std::uint32_t { kRow, kGradient };

using NeedIndex = std::uint32_t;  // of a row among those that a worker needs
using NeedList = Column<NeedIndex>;

struct WorkerLists {
  void clear();

  // Append to the plan what the lists say, before any state of the batch changes. The first also fills `cached`,
  // `missing` and `pulls`; the slots of what is missing are still to be written.
  void write_needs(const PreparedBatch& batch, const Trainers& trainers, Arena& arena, WorkerPlan& plan);
  void write_pushes(const PreparedBatch& batch, const CopyDirectory& directory, Arena& arena, WorkerPlan& plan) const;

  // Append the rest when the missing rows have their slots. `continued` says whether rows of the batch may continue an
  // earlier life; `need_of` is scratch space.
  void write_pulls(const PreparedBatch& batch, const RowSizes& sizes, bool continued, Arena& arena,
                   WorkerPlan& plan) const;
  void write_samples(const std::vector<SampleIndex>& samples, const PreparedBatch& batch, Arena& arena,
                     WorkerPlan& plan, std::vector<NeedIndex>& need_of) const;

  // Append which of the pushes and of the pulls go straight between two workers: those of rows that one owns, and one
  // other alone trains now. The first also fills `senders`, before any copy leaves a cache.
  void write_direct_pushes(const PreparedBatch& batch, const Trainers& trainers, Arena& arena, WorkerPlan& plan);
  void write_direct_pulls(Arena& arena, WorkerPlan& plan) const;

  // Makes the pulls of early missing rows, from one of these to another, late.
  void delay_pulls(std::size_t from, std::size_t to);

  // The size of some needed rows together.
  std::uint64_t size_of(const NeedList& list, const PreparedBatch& batch) const;

  // Filled by `resolve`, ascending by row.
  DraftList<Need> needs;          // the rows U_j
  DraftList<SlotIndex> outdated;  // copies that lose the latest value, or give a partial gradient away
  DraftList<Push> pushes[2][2];   // by Payload and Timing

  // Filled by `write_needs`.
  Column<SlotIndex> cached;  // slots of the needs that are cached
  NeedList missing[2];       // by Timing, needs that are not cached
  NeedList pulls[2];         // by Timing, needs to pull

  // Filled by `write_direct_pushes`, by need: the worker that sends the row, kNoSender if none does.
  static constexpr std::uint8_t kNoSender = kMaxWorkers;
  std::vector<std::uint8_t> senders;
};

}  // namespace esd
