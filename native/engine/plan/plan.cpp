#include "engine/plan/plan.h"

#include <algorithm>

namespace esd {
namespace {

std::size_t count_early(const TransferRow* rows, std::size_t count) {
  return static_cast<std::size_t>(
      std::count_if(rows, rows + count, [](const TransferRow& row) { return row.timing == kEarly; }));
}

}  // namespace

TransferSpans reserve_transfers(Arena& arena, std::size_t count, std::size_t early) {
  TransferSpans columns;
  columns.ids = reserve_column(arena.u64, count);
  columns.slots = reserve_column(arena.u32, count);
  columns.versions = reserve_column(arena.i64, count);
  columns.early = early;
  return columns;
}

TransferSpans reserve_gradients(Arena& arena, std::size_t count, std::size_t early) {
  TransferSpans columns = reserve_transfers(arena, count, early);
  columns.contributors = reserve_column(arena.sets, count);
  columns.steps = reserve_column(arena.i64, count);
  return columns;
}

TransferSpans append_rows(Arena& arena, const TransferRow* rows, std::size_t count) {
  TransferSpans columns = reserve_transfers(arena, count, count_early(rows, count));
  TransferWriter writer(arena, columns);
  for (std::size_t i = 0; i < count; ++i) {
    writer.write(rows[i].timing, rows[i].id, rows[i].slot, rows[i].version);
  }
  return columns;
}

TransferSpans append_gradients(Arena& arena, const TransferRow* gradients, std::size_t count) {
  TransferSpans columns = reserve_gradients(arena, count, count_early(gradients, count));
  TransferWriter writer(arena, columns);
  for (std::size_t i = 0; i < count; ++i) {
    const TransferRow& gradient = gradients[i];
    const std::size_t at = writer.write(gradient.timing, gradient.id, gradient.slot, gradient.version);
    arena.sets[columns.contributors.begin + at] = gradient.contributors;
    arena.i64[columns.steps.begin + at] = gradient.step;
  }
  return columns;
}

}  // namespace esd
