// The plans of one iteration as columns. All columns of all workers lie in one arena of four flat arrays, one behind
// the other as they were written, and a plan is the spans that say where:
//
//   u64  | ids of worker 0's needs | ids of worker 0's update pushes | ... | worker 1's ...
//   i64  | versions of its needs   | versions of its update pushes | ...
//   u32  | slots of its needs      | slots of its update pushes    | ...
//   sets | contributors of its needs | contributors of its update gradients | ...
//
// So a plan of any size costs a few allocations, none when an arena comes back from former plans, and Python sees
// slices of four arrays.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/workers.h"
#include "engine/batch/row_sizes.h"
#include "engine/memory/column.h"
#include "engine/rows/index_types.h"
#include "engine/rows/row_state.h"

namespace esd {

// A column: a slice of one of the arena's arrays.
struct Span {
  std::size_t begin = 0, size = 0;
};

struct Arena {
  Column<std::uint64_t> u64;
  Column<std::int64_t> i64;
  Column<std::uint32_t> u32;
  Column<WorkerSet> sets;

  void clear() {
    u64.clear();
    i64.clear();
    u32.clear();
    sets.clear();
  }
};

// Grows a flat array by one column, yet to be written. Pointers into the array become invalid.
template <typename T>
Span reserve_column(Column<T>& values, std::size_t size) {
  const Span span{values.size(), size};
  values.resize(values.size() + size);
  return span;
}

// Grows a flat array by one column of zeros, in which something is counted.
template <typename T>
Span zero_column(Column<T>& values, std::size_t size) {
  const Span span = reserve_column(values, size);
  std::fill_n(values.data() + span.begin, size, T{});
  return span;
}

// The columns of esd.services.domain.plans.Transfers; where partial gradients move, also contributors and steps.
struct TransferSpans {
  Span ids, slots, versions;  // u64, u32, i64
  Span contributors, steps;   // sets, i64
  std::size_t early = 0;      // how many rows, the first ones, may move early
};

// The columns of esd.services.domain.plans.DirectRows.
struct DirectSpans {
  Span places, peers;  // u32
};

// The columns of esd.services.domain.plans.IterationPlan.
struct WorkerPlan {
  TransferSpans update_rows, update_gradients, evict_rows, evict_gradients, drops, discards, pulls;
  Span stateless_pulls;     // u32, by table, of rows without optimizer state
  Span initial_pulls;       // u32, by table, of rows that were never trained, which are among these
  Span positions, inverse;  // u32
  Span unique_ids, unique_slots, unique_versions, unique_contributors;  // u64, u32, i64, sets
  Span initial_ids;  // u64, ids of the samples that are not admitted; their places follow those of the unique ids
  Span reduced;      // u32, places of the rows that all workers train by the sum of their gradients
  DirectSpans direct_pushes, direct_pulls;
  // Rows trained here that no sample here uses, and how many of these are pulled: by table, u32, and together. The columns
  // are empty where there are none.
  Span idle, idle_pulls;
  std::size_t all_idle = 0, all_idle_pulls = 0;

  // How many rows the worker's samples use, and how many of these are not pulled.
  std::size_t lookups() const { return unique_ids.size - all_idle; }
  std::size_t hits() const { return lookups() - (pulls.ids.size - all_idle_pulls); }
};

struct IterationPlans {
  std::uint32_t iteration = 0;
  std::size_t fields = 0;
  std::size_t tables = 1;
  Span forgotten;                    // u64, ids of the rows that leave the table
  std::size_t expired = 0;           // how many of them, the first ones, leave since their time to live is over
  std::int64_t forgotten_below = 0;  // their versions so far are all below it
  Arena arena;
  std::vector<WorkerPlan> workers;
  std::vector<std::int64_t> figures;  // that the way to synchronise counts, as its class describes them
};

// The columns of esd.services.domain.plans.FlushPlan.
struct WorkerFlush {
  TransferSpans rows, gradients;
};

struct FlushPlans {
  std::uint32_t iteration = 0;
  Arena arena;
  std::vector<WorkerFlush> workers;
};

// When a row may move: early, which is while the previous iteration trains, or late, when that has ended. Indexes pairs
// of lists, so that no code branches on what can hardly be predicted.
enum Timing : std::uint16_t { kLate, kEarly };

inline Timing timing_of(const RowState& row, std::uint32_t iteration) {
  return static_cast<Timing>(!row.used_in(iteration - 1));
}

// One row to move: `row`, of size `size`, out of `slot` in iteration `now`. `contributors` are those of a split row.
struct TransferRow {
  TransferRow() = default;
  TransferRow(const RowState& row, std::uint32_t size, WorkerSet contributors, SlotIndex slot, std::uint32_t now)
      : id(row.id),
        contributors(contributors),
        version(row.full_version()),
        slot(slot),
        step(row.last_use + 1),
        size(static_cast<std::uint16_t>(size)),
        timing(timing_of(row, now)) {}

  std::uint64_t id;
  WorkerSet contributors;
  std::int64_t version;  // full
  SlotIndex slot;
  std::uint32_t step;
  std::uint16_t size;  // of the row
  Timing timing;
};

// Grow the arena by the columns of `count` rows, of which `early` may move early.
TransferSpans reserve_transfers(Arena& arena, std::size_t count, std::size_t early);
TransferSpans reserve_gradients(Arena& arena, std::size_t count, std::size_t early);

// Writes rows into reserved columns, the early rows before the late ones, otherwise in the order of the calls. The
// arena must not grow meanwhile.
class TransferWriter {
 public:
  TransferWriter(Arena& arena, const TransferSpans& columns)
      : ids_(arena.u64.data() + columns.ids.begin),
        slots_(arena.u32.data() + columns.slots.begin),
        versions_(arena.i64.data() + columns.versions.begin) {
    next_[kEarly] = 0;
    next_[kLate] = columns.early;
  }

  // Returns the position of the row in the columns.
  std::size_t write(Timing timing, std::uint64_t id, SlotIndex slot, std::int64_t version) {
    const std::size_t at = next_[timing]++;
    ids_[at] = id;
    slots_[at] = slot;
    versions_[at] = version;
    return at;
  }

 private:
  std::uint64_t* ids_;
  SlotIndex* slots_;
  std::int64_t* versions_;
  std::size_t next_[2];  // by Timing
};

// Append the columns of some rows, or of their partial gradients, to the arena.
TransferSpans append_rows(Arena& arena, const TransferRow* rows, std::size_t count);
TransferSpans append_gradients(Arena& arena, const TransferRow* gradients, std::size_t count);

}  // namespace esd
