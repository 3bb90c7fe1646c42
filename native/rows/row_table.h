// The memory store's table from ids to versions and rows. It is thread-safe and grows without a stall.
//
// Rows are spread over segments, each with its own lock, hash index and row chunks. Chunks never move, so growth copies
// no row. The index of a segment doubles alone, so no pause is longer than one segment's rehash (1/256 of the table).
// The space of a removed row is given to the next new one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <vector>

#include "common/mix64.h"

namespace esd::rows {

// A version encodes how often the row was trained in its present life, and whether the life continues an earlier one: it
// is life * 2^30 + trainings, and odd lives do
// (services/domain/versions.py).
inline std::int64_t trainings_of(std::int64_t version) { return version & ((std::int64_t{1} << 30) - 1); }
inline bool continues(std::int64_t version) { return (version >> 30 & 1) != 0; }

class RowTable {
 public:
  explicit RowTable(std::size_t width) : width_(width), stride_(sizeof(Header) + (width * sizeof(float) + 7) / 8 * 8) {
    while (chunk_rows() * 2 * stride_ <= kChunkBytes) ++chunk_shift_;
  }

  std::size_t width() const { return width_; }

  // Reads the versions of n rows, 0 for an absent row.
  void versions(const std::uint64_t* ids, std::size_t n, std::int64_t* out) const {
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint64_t hash = mix64(ids[i]);
      const Segment& segment = segments_[hash >> kSegmentShift];
      const std::lock_guard lock(segment.mutex);
      const std::byte* record = find(segment, hash, ids[i]);
      out[i] = record ? header(record).version : 0;
    }
  }

  // Reads versions and rows [n, W], version 0 and zeros for an absent row.
  void read(const std::uint64_t* ids, std::size_t n, std::int64_t* versions, float* rows) const {
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint64_t hash = mix64(ids[i]);
      const Segment& segment = segments_[hash >> kSegmentShift];
      const std::lock_guard lock(segment.mutex);
      const std::byte* record = find(segment, hash, ids[i]);
      versions[i] = record ? header(record).version : 0;
      if (record) {
        std::memcpy(rows + i * width_, record + sizeof(Header), width_ * sizeof(float));
      } else {
        std::memset(rows + i * width_, 0, width_ * sizeof(float));
      }
    }
  }

  // Stores each row whose version is above the stored one. Writes to stored[i] whether row i was stored.
  void write_newer(const std::uint64_t* ids, std::size_t n, const std::int64_t* versions, const float* rows,
                   bool* stored) {
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint64_t hash = mix64(ids[i]);
      Segment& segment = segments_[hash >> kSegmentShift];
      const std::lock_guard lock(segment.mutex);
      std::byte* record = find(segment, hash, ids[i]);
      stored[i] = versions[i] > (record ? header(record).version : 0);
      if (!stored[i]) continue;
      if (!record) record = insert(segment, hash, ids[i]);
      put(segment, record, versions[i], rows + i * width_);
    }
  }

  // Calls take(version, floats) with the version of one row, 0 if it is absent, and its floats [W], which stay
  // unchanged during the call.
  template <typename Take>
  void look_up(std::uint64_t id, const Take& take) const {
    const std::uint64_t hash = mix64(id);
    const Segment& segment = segments_[hash >> kSegmentShift];
    const std::lock_guard lock(segment.mutex);
    const std::byte* record = find(segment, hash, id);
    take(record ? header(record).version : 0, record ? record + sizeof(Header) : nullptr);
  }

  // Stores one row, whose floats [W] may lie at any address, if its version is above the stored one. The previous row
  // is first kept in `pre_images`, if these are given and do not have the row yet, one version above its own.
  bool write_newer(std::uint64_t id, std::int64_t version, const void* row, RowTable* pre_images) {
    const std::uint64_t hash = mix64(id);
    Segment& segment = segments_[hash >> kSegmentShift];
    const std::lock_guard lock(segment.mutex);
    std::byte* record = find(segment, hash, id);
    const std::int64_t before = record ? header(record).version : 0;
    if (version <= before) return false;
    if (pre_images) pre_images->keep(id, before + 1, record ? record + sizeof(Header) : nullptr);
    if (!record) record = insert(segment, hash, id);
    put(segment, record, version, row);
    return true;
  }

  // Stores each row, in place of the stored one; version 0 removes the row.
  void overwrite(const std::uint64_t* ids, std::size_t n, const std::int64_t* versions, const float* rows) {
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint64_t hash = mix64(ids[i]);
      Segment& segment = segments_[hash >> kSegmentShift];
      const std::lock_guard lock(segment.mutex);
      if (versions[i] == 0) {
        forget(segment, hash, ids[i]);
        continue;
      }
      std::byte* record = find(segment, hash, ids[i]);
      if (!record) record = insert(segment, hash, ids[i]);
      put(segment, record, versions[i], rows + i * width_);
    }
  }

  // Removes each row whose version is below `below`; returns their number. Their space is reused.
  std::size_t forget_older(const std::uint64_t* ids, std::size_t n, std::int64_t below) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint64_t hash = mix64(ids[i]);
      Segment& segment = segments_[hash >> kSegmentShift];
      const std::lock_guard lock(segment.mutex);
      const std::byte* record = find(segment, hash, ids[i]);
      if (!record || header(record).version >= below) continue;
      forget(segment, hash, ids[i]);
      ++count;
    }
    return count;
  }

  // Copies up to `limit` rows from `cursor` on, which starts at 0 and is advanced past them. Returns their number, 0 at
  // the end.
  std::size_t scan(std::uint64_t& cursor, std::size_t limit, std::uint64_t* ids, std::int64_t* versions,
                   float* rows) const {
    std::size_t n = 0;
    while (n < limit && (cursor >> 32) < kSegments) {
      const Segment& segment = segments_[cursor >> 32];
      const std::lock_guard lock(segment.mutex);
      std::size_t slot = cursor & 0xffffffffULL;
      for (; n < limit && slot < segment.size; ++slot) {
        const std::byte* record = at(segment, slot);
        if (header(record).version == 0) continue;
        ids[n] = header(record).id;
        versions[n] = header(record).version;
        std::memcpy(rows + n * width_, record + sizeof(Header), width_ * sizeof(float));
        ++n;
      }
      cursor = slot < segment.size ? (cursor >> 32 << 32 | slot) : ((cursor >> 32) + 1) << 32;
    }
    return n;
  }

  std::size_t size() const {
    std::size_t total = 0;
    for (const Segment& segment : segments_) {
      const std::lock_guard lock(segment.mutex);
      total += segment.size - segment.vacant.size();
    }
    return total;
  }

  // The trainings of all rows in their present lives.
  std::int64_t trainings() const {
    std::int64_t total = 0;
    for (const Segment& segment : segments_) {
      const std::lock_guard lock(segment.mutex);
      total += segment.trainings;
    }
    return total;
  }

  std::size_t memory_bytes() const {
    std::size_t total = sizeof(*this);
    for (const Segment& segment : segments_) {
      const std::lock_guard lock(segment.mutex);
      total += segment.index.capacity() * sizeof(Entry) + segment.vacant.capacity() * sizeof(std::uint32_t) +
               segment.chunks.size() * (chunk_rows() * stride_);
    }
    return total;
  }

 private:
  static constexpr std::size_t kSegments = 256;
  static constexpr int kSegmentShift = 56;  // The segment is the top byte of the hash.
  static constexpr std::size_t kChunkBytes = 64 * 1024;
  static constexpr std::uint64_t kFibonacci = 0x9e3779b97f4a7c15ULL;

  struct Header {
    std::uint64_t id;
    std::int64_t version;
  };

  struct Entry {
    std::uint64_t id;
    std::uint32_t slot_plus_one;  // 0: free
  };

  struct Segment {
    mutable std::mutex mutex;
    std::vector<Entry> index;  // with open addressing and linear probing; a power of two, at most 3/4 full
    int index_bits = 0;
    std::vector<std::unique_ptr<std::byte[]>> chunks;
    std::size_t size = 0;               // number of slots, the vacant ones included
    std::vector<std::uint32_t> vacant;  // slots of removed rows, whose records are at version 0
    std::int64_t trainings = 0;
  };

  static Header& header(std::byte* record) { return *reinterpret_cast<Header*>(record); }
  static const Header& header(const std::byte* record) { return *reinterpret_cast<const Header*>(record); }

  std::size_t chunk_rows() const { return std::size_t{1} << chunk_shift_; }

  std::byte* at(const Segment& segment, std::size_t slot) const {
    return segment.chunks[slot >> chunk_shift_].get() + (slot & (chunk_rows() - 1)) * stride_;
  }

  // The first position to probe. The ids of a shard share mix64(id) mod shards, so the low bits alone would collide.
  static std::size_t home(const Segment& segment, std::uint64_t hash) {
    return (hash << 8) * kFibonacci >> (64 - segment.index_bits);
  }

  std::byte* find(const Segment& segment, std::uint64_t hash, std::uint64_t id) const {
    if (segment.index.empty()) return nullptr;
    const std::size_t mask = segment.index.size() - 1;
    for (std::size_t i = home(segment, hash);; i = (i + 1) & mask) {
      const Entry& entry = segment.index[i];
      if (entry.slot_plus_one == 0) return nullptr;
      if (entry.id == id) return at(segment, entry.slot_plus_one - 1);
    }
  }

  // Stores a row unless it exists; null stands for a row of zeros.
  void keep(std::uint64_t id, std::int64_t version, const void* row) {
    const std::uint64_t hash = mix64(id);
    Segment& segment = segments_[hash >> kSegmentShift];
    const std::lock_guard lock(segment.mutex);
    if (find(segment, hash, id)) return;
    put(segment, insert(segment, hash, id), version, row);
  }

  // Null stands for a row of zeros.
  void put(Segment& segment, std::byte* record, std::int64_t version, const void* row) {
    segment.trainings += trainings_of(version) - trainings_of(header(record).version);
    header(record).version = version;
    if (row) {
      std::memcpy(record + sizeof(Header), row, width_ * sizeof(float));
    } else {
      std::memset(record + sizeof(Header), 0, width_ * sizeof(float));
    }
  }

  std::byte* insert(Segment& segment, std::uint64_t hash, std::uint64_t id) {
    const std::size_t rows = segment.size - segment.vacant.size();
    if ((rows + 1) * 4 > segment.index.size() * 3) grow_index(segment);
    const std::size_t slot = vacant_slot(segment);
    place(segment, hash, {id, static_cast<std::uint32_t>(slot + 1)});
    std::byte* record = at(segment, slot);
    header(record) = {id, 0};
    return record;
  }

  std::size_t vacant_slot(Segment& segment) const {
    if (!segment.vacant.empty()) {
      const std::size_t slot = segment.vacant.back();
      segment.vacant.pop_back();
      return slot;
    }
    if (segment.size == segment.chunks.size() * chunk_rows()) {
      segment.chunks.emplace_back(new std::byte[chunk_rows() * stride_]);
    }
    return segment.size++;
  }

  // Removes the row, if it exists. Later entries of the same probing sequence move up into the gap, so that probing
  // still finds them.
  void forget(Segment& segment, std::uint64_t hash, std::uint64_t id) {
    if (segment.index.empty()) return;
    const std::size_t mask = segment.index.size() - 1;
    std::size_t gap = home(segment, hash);
    for (; segment.index[gap].slot_plus_one == 0 || segment.index[gap].id != id; gap = (gap + 1) & mask) {
      if (segment.index[gap].slot_plus_one == 0) return;
    }
    const std::uint32_t slot = segment.index[gap].slot_plus_one - 1;
    for (std::size_t i = (gap + 1) & mask; segment.index[i].slot_plus_one != 0; i = (i + 1) & mask) {
      const std::size_t passed = (i - home(segment, mix64(segment.index[i].id))) & mask;
      if (passed < ((i - gap) & mask)) continue;
      segment.index[gap] = segment.index[i];
      gap = i;
    }
    segment.index[gap] = {0, 0};
    Header& forgotten = header(at(segment, slot));
    segment.trainings -= trainings_of(forgotten.version);
    forgotten.version = 0;
    segment.vacant.push_back(slot);
  }

  static void place(Segment& segment, std::uint64_t hash, Entry entry) {
    const std::size_t mask = segment.index.size() - 1;
    std::size_t i = home(segment, hash);
    while (segment.index[i].slot_plus_one != 0) i = (i + 1) & mask;
    segment.index[i] = entry;
  }

  static void grow_index(Segment& segment) {
    std::vector<Entry> old(segment.index.empty() ? 16 : segment.index.size() * 2);
    old.swap(segment.index);
    segment.index_bits = old.empty() ? 4 : segment.index_bits + 1;
    for (const Entry& entry : old) {
      if (entry.slot_plus_one != 0) place(segment, mix64(entry.id), entry);
    }
  }

  std::size_t width_;
  std::size_t stride_;  // the bytes of a record, header and row
  int chunk_shift_ = 0;
  std::array<Segment, kSegments> segments_;
};

}  // namespace esd::rows
