// The rows that have changed since a cut of the table, as they were at the cut. It is thread-safe.
//
// A row that existed at the cut is kept with its version and floats, any other one as an id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "rows/id_set.h"
#include "rows/row_table.h"

namespace esd::rows {

class PreImages {
 public:
  explicit PreImages(std::size_t width) : rows_(width) {}

  std::size_t width() const { return rows_.width(); }
  std::size_t size() const { return rows_.size() + absent_.size(); }
  std::size_t memory_bytes() const { return rows_.memory_bytes() + absent_.memory_bytes(); }

  // Keeps a row that is about to change, of version 0 if it does not exist, unless it has changed before. The caller
  // makes sure that the same row is not kept by two threads at once.
  void keep(std::uint64_t id, std::int64_t version, const void* row) {
    if (version == 0) {
      if (!rows_.has(id)) absent_.add(id);
    } else if (!absent_.has(id)) {
      rows_.add(id, version, row);
    }
  }

  bool has(std::uint64_t id) const { return rows_.has(id) || absent_.has(id); }

  // Replaces a version and its floats [W] by those at the cut, version 0 and zeros where the row did not exist, if the
  // row has changed since.
  void overlay(std::uint64_t id, std::int64_t& version, float* row) const {
    bool kept = false;
    rows_.look_up(id, [&](std::int64_t before, const std::byte* floats) {
      kept = before != 0;
      if (!kept) return;
      version = before;
      std::memcpy(row, floats, width() * sizeof(float));
    });
    if (kept || !absent_.has(id)) return;
    version = 0;
    std::memset(row, 0, width() * sizeof(float));
  }

  // Copies up to `limit` rows from `cursor` on, which starts at 0 and is advanced past them: first the rows that existed
  // at the cut, then the others at version 0. Returns their number, 0 at the end. While rows are added, some of the
  // others may be skipped or repeated.
  std::size_t scan(std::uint64_t& cursor, std::size_t limit, std::uint64_t* ids, std::int64_t* versions,
                   float* rows) const {
    if ((cursor & kAbsent) == 0) {
      const std::size_t n = rows_.scan(cursor, limit, ids, versions, rows);
      if (n > 0) return n;
      cursor = kAbsent;
    }
    std::uint64_t place = cursor & ~kAbsent;
    const std::size_t n = absent_.scan(place, limit, ids);
    cursor = place | kAbsent;
    std::memset(versions, 0, n * sizeof(std::int64_t));
    std::memset(rows, 0, n * width() * sizeof(float));
    return n;
  }

 private:
  static constexpr std::uint64_t kAbsent = std::uint64_t{1} << 63;  // marks a cursor among the rows that did not exist

  RowTable rows_;
  IdSet absent_;
};

}  // namespace esd::rows
