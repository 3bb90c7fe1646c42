#include "engine/plan/plan.h"

#include <algorithm>

namespace esd {
namespace {

std::size_t count_early(const Transfer* transfers, std::size_t count) {
  return static_cast<std::size_t>(
      std::count_if(transfers, transfers + count, [](const Transfer& transfer) { return transfer.early; }));
}

std::uint64_t total_size(const Transfer* transfers, std::size_t count) {
  std::uint64_t size = 0;
  for (std::size_t i = 0; i < count; ++i) size += transfers[i].size;
  return size;
}

}  // namespace

Transfers add_transfers(Arena& arena, std::size_t count, std::size_t early) {
  Transfers columns;
  columns.ids = add_column(arena.u64, count);
  columns.slots = add_column(arena.u32, count);
  columns.versions = add_column(arena.i64, count);
  columns.early = early;
  columns.size = count;
  return columns;
}

Transfers add_gradients(Arena& arena, std::size_t count, std::size_t early) {
  Transfers columns = add_transfers(arena, count, early);
  columns.contributors = add_column(arena.u64, count);
  columns.steps = add_column(arena.i64, count);
  return columns;
}

Transfers append_rows(Arena& arena, const Transfer* transfers, std::size_t count) {
  Transfers columns = add_transfers(arena, count, count_early(transfers, count));
  columns.size = total_size(transfers, count);
  TransferWriter writer(arena, columns);
  for (std::size_t i = 0; i < count; ++i) {
    const Transfer& row = transfers[i];
    writer.write(row.early, row.id, row.slot, row.version);
  }
  return columns;
}

Transfers append_gradients(Arena& arena, const Transfer* transfers, std::size_t count) {
  Transfers columns = add_gradients(arena, count, count_early(transfers, count));
  columns.size = total_size(transfers, count);
  TransferWriter writer(arena, columns);
  for (std::size_t i = 0; i < count; ++i) {
    const Transfer& gradient = transfers[i];
    const std::size_t at = writer.write(gradient.early, gradient.id, gradient.slot, gradient.version);
    arena.u64[columns.contributors.begin + at] = gradient.contributors;
    arena.i64[columns.steps.begin + at] = gradient.step;
  }
  return columns;
}

}  // namespace esd
