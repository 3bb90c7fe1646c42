// Plan columns of one iteration, all workers': three flat arrays, and where in them each column lies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/memory/column.h"
#include "engine/rows/row_state.h"

namespace esd {

struct Span {
  std::size_t begin = 0, size = 0;
};

// Grows a flat array by one column, yet to be written.
template <typename T>
Span add_column(Column<T>& values, std::size_t size) {
  const Span span{values.size(), size};
  values.resize(values.size() + size);
  return span;
}

struct Arena {
  Column<std::uint64_t> u64;
  Column<std::int64_t> i64;
  Column<std::uint32_t> u32;

  void clear() {
    u64.clear();
    i64.clear();
    u32.clear();
  }
};

// Columns of services.domain.plans.Transfers; for gradients also contributors and steps.
struct Transfers {
  Span ids, slots, versions;  // u64, u32, i64
  Span contributors, steps;   // u64, i64
  std::size_t early = 0;
  std::uint64_t size = 0;  // of all rows together
};

struct WorkerPlan {
  Transfers update_rows, update_gradients, evict_rows, evict_gradients, drops, discards, pulls;
  Span positions, inverse;                                              // u32
  Span unique_ids, unique_slots, unique_versions, unique_contributors;  // u64, u32, i64, u64
};

struct IterationPlans {
  std::uint32_t iteration = 0;
  std::size_t fields = 0;
  Span forgotten;                    // u64, ids of rows that leave the table
  std::int64_t forgotten_below = 0;  // full versions of their lives so far
  Arena arena;
  std::vector<WorkerPlan> workers;
};

struct WorkerFlush {
  Transfers rows, gradients;
};

struct FlushPlans {
  std::uint32_t iteration = 0;
  Arena arena;
  std::vector<WorkerFlush> workers;
};

// One row to move: `row`, of size `size`, out of `slot` in iteration `now`; `contributors` of a split row.
struct Transfer {
  Transfer() = default;
  Transfer(const RowState& row, std::uint32_t size, WorkerMask contributors, std::uint32_t slot, std::uint32_t now)
      : id(row.id),
        contributors(contributors),
        version(row.full_version()),
        slot(slot),
        step(row.last_use + 1),
        size(static_cast<std::uint16_t>(size)),
        early(!row.used_in(now - 1)) {}

  std::uint64_t id;
  std::uint64_t contributors;
  std::int64_t version;  // full
  std::uint32_t slot;
  std::uint32_t step;
  std::uint16_t size;  // of the row
  bool early;
};

// Makes room for the columns of `count` rows of size 1, `early` of them early ones.
Transfers add_transfers(Arena& arena, std::size_t count, std::size_t early);
Transfers add_gradients(Arena& arena, std::size_t count, std::size_t early);

// Fills columns, the early rows first, otherwise in the order of the calls. The arena must not grow meanwhile.
class TransferWriter {
 public:
  TransferWriter(Arena& arena, const Transfers& columns)
      : ids_(arena.u64.data() + columns.ids.begin),
        slots_(arena.u32.data() + columns.slots.begin),
        versions_(arena.i64.data() + columns.versions.begin),
        next_{columns.early, 0} {}

  // Returns the place of the row in the columns.
  std::size_t write(bool early, std::uint64_t id, std::uint32_t slot, std::int64_t version) {
    const std::size_t at = next_[early]++;
    ids_[at] = id;
    slots_[at] = slot;
    versions_[at] = version;
    return at;
  }

 private:
  std::uint64_t* ids_;
  std::uint32_t* slots_;
  std::int64_t* versions_;
  std::size_t next_[2];  // of the late and of the early rows
};

// Append the columns of `count` transfers to the arena.
Transfers append_rows(Arena& arena, const Transfer* transfers, std::size_t count);
Transfers append_gradients(Arena& arena, const Transfer* transfers, std::size_t count);

}  // namespace esd
