// The memory store's table from ids to versions and rows. It is thread-safe and grows without a stall.
//
// Rows are spread over segments, each with its own lock, index and slabs of rows. Slabs never move, so growth copies no
// row. The index of a segment grows alone and by a quarter, so no pause is longer than the copy of one index (8 bytes for
// each row of 1/64 of the table). The space of a removed row is given to the next new one.
//
// A row takes 16 bytes in addition to its floats, and 11 to 14 bytes of an index.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <vector>

#include "common/mix64.h"
#include "common/pages.h"
#include "rows/probe_table.h"

namespace esd::rows {

// A version encodes how often the row was trained in its present life, and whether the life continues an earlier one: it
// is life * 2^30 + trainings, and odd lives do
// (services/domain/versions.py).
inline std::int64_t trainings_of(std::int64_t version) { return version & ((std::int64_t{1} << 30) - 1); }
inline bool continues(std::int64_t version) { return (version >> 30 & 1) != 0; }

class RowTable {
 public:
  explicit RowTable(std::size_t width) : width_(width), stride_(kHeaderBytes + width * sizeof(float)) {
    while ((slab_rows() * 2) * stride_ <= kSlabBytes) ++slab_shift_;
  }

  std::size_t width() const { return width_; }

  // Reads the versions of n rows, 0 for an absent row.
  void versions(const std::uint64_t* ids, std::size_t n, std::int64_t* out) const {
    for (std::size_t i = 0; i < n; ++i) {
      look_up(ids[i], [&](std::int64_t version, const std::byte*) { out[i] = version; });
    }
  }

  // Reads versions and rows [n, W], version 0 and zeros for an absent row.
  void read(const std::uint64_t* ids, std::size_t n, std::int64_t* versions, float* rows) const {
    for (std::size_t i = 0; i < n; ++i) {
      look_up(ids[i], [&](std::int64_t version, const std::byte* floats) {
        versions[i] = version;
        if (floats) {
          std::memcpy(rows + i * width_, floats, width_ * sizeof(float));
        } else {
          std::memset(rows + i * width_, 0, width_ * sizeof(float));
        }
      });
    }
  }

  // Calls take(version, floats) with the version of one row, 0 if it is absent, and its floats [W], which stay
  // unchanged during the call; null if it is absent.
  template <typename Take>
  void look_up(std::uint64_t id, const Take& take) const {
    const std::uint64_t hash = mix64(id);
    const Segment& segment = segment_of(hash);
    const std::lock_guard lock(segment.mutex);
    const std::byte* record = find(segment, hash, id);
    take(record ? version_of(record) : 0, record ? record + kHeaderBytes : nullptr);
  }

  bool has(std::uint64_t id) const {
    const std::uint64_t hash = mix64(id);
    const Segment& segment = segment_of(hash);
    const std::lock_guard lock(segment.mutex);
    return find(segment, hash, id) != nullptr;
  }

  // Stores one row, whose floats [W] may lie at any address, if its version is above the stored one. Before that, the
  // previous row is kept in `pre_images`, unless these are null.
  template <typename PreImages>
  bool write_newer(std::uint64_t id, std::int64_t version, const void* row, PreImages* pre_images) {
    const std::uint64_t hash = mix64(id);
    Segment& segment = segment_of(hash);
    const std::lock_guard lock(segment.mutex);
    std::byte* record = find(segment, hash, id);
    const std::int64_t before = record ? version_of(record) : 0;
    if (version <= before) return false;
    if (pre_images) pre_images->keep(id, before, record ? record + kHeaderBytes : nullptr);
    if (!record) record = insert(segment, hash, id);
    put(segment, record, version, row);
    return true;
  }

  // Stores a row unless it exists.
  void add(std::uint64_t id, std::int64_t version, const void* row) {
    const std::uint64_t hash = mix64(id);
    Segment& segment = segment_of(hash);
    const std::lock_guard lock(segment.mutex);
    if (!find(segment, hash, id)) put(segment, insert(segment, hash, id), version, row);
  }

  // Stores a row in place of the stored one; version 0 removes it.
  void overwrite(std::uint64_t id, std::int64_t version, const float* row) {
    const std::uint64_t hash = mix64(id);
    Segment& segment = segment_of(hash);
    const std::lock_guard lock(segment.mutex);
    std::byte* record = find(segment, hash, id);
    if (version == 0) {
      if (record) remove(segment, hash, record);
      return;
    }
    if (!record) record = insert(segment, hash, id);
    put(segment, record, version, row);
  }

  // Removes a row if its version is below `below`; returns whether it did. The space is reused. Before that, the row is
  // kept in `pre_images`, unless these are null.
  template <typename PreImages>
  bool forget_older(std::uint64_t id, std::int64_t below, PreImages* pre_images) {
    const std::uint64_t hash = mix64(id);
    Segment& segment = segment_of(hash);
    const std::lock_guard lock(segment.mutex);
    std::byte* record = find(segment, hash, id);
    if (!record || version_of(record) >= below) return false;
    if (pre_images) pre_images->keep(id, version_of(record), record + kHeaderBytes);
    remove(segment, hash, record);
    return true;
  }

  // Copies up to `limit` rows from `cursor` on, which starts at 0 and is advanced past them. Returns their number, 0 at
  // the end. A row that is stored all the time is copied exactly once.
  std::size_t scan(std::uint64_t& cursor, std::size_t limit, std::uint64_t* ids, std::int64_t* versions,
                   float* rows) const {
    std::size_t n = 0;
    while (n < limit && (cursor >> 32) < kSegments) {
      const Segment& segment = segments_[cursor >> 32];
      const std::lock_guard lock(segment.mutex);
      std::size_t slot = cursor & 0xffffffffULL;
      for (; n < limit && slot < segment.slots; ++slot) {
        const std::byte* record = at(segment, slot);
        if (version_of(record) == 0) continue;
        ids[n] = id_of(record);
        versions[n] = version_of(record);
        std::memcpy(rows + n * width_, record + kHeaderBytes, width_ * sizeof(float));
        ++n;
      }
      cursor = slot < segment.slots ? (cursor >> 32 << 32 | slot) : ((cursor >> 32) + 1) << 32;
    }
    return n;
  }

  std::size_t size() const {
    return sum<std::size_t>([](const Segment& segment) { return segment.index.used(); });
  }

  // The trainings of all rows in their present lives.
  std::int64_t trainings() const {
    return sum<std::int64_t>([](const Segment& segment) { return segment.trainings; });
  }

  std::size_t memory_bytes() const {
    return sizeof(*this) + sum<std::size_t>([this](const Segment& segment) {
             return segment.index.memory_bytes() + segment.slots * stride_ +
                    segment.vacant.capacity() * sizeof(std::uint32_t);
           });
  }

 private:
  static constexpr std::size_t kSegments = 64;
  static constexpr int kSegmentShift = 58;  // The segment is the top 6 bits of the hash.
  static constexpr std::size_t kSlabBytes = 512 * 1024;
  static constexpr std::size_t kHeaderBytes = 16;  // of a record: its id and its version, before the floats

  struct Entry {
    std::uint32_t hash_bits = 0;
    std::uint32_t slot_plus_one = 0;  // 0: free

    bool free() const { return slot_plus_one == 0; }
    std::uint32_t bits() const { return hash_bits; }
  };

  struct Segment {
    mutable std::mutex mutex;
    ProbeTable<Entry> index;
    std::vector<Pages> slabs;
    std::size_t slots = 0;              // number of records, the vacant ones included
    std::vector<std::uint32_t> vacant;  // slots of removed rows, whose records are at version 0
    std::int64_t trainings = 0;
  };

  // Records lie at multiples of 4 bytes.
  static std::uint64_t id_of(const std::byte* record) {
    std::uint64_t id;
    std::memcpy(&id, record, sizeof id);
    return id;
  }
  static std::int64_t version_of(const std::byte* record) {
    std::int64_t version;
    std::memcpy(&version, record + sizeof(std::uint64_t), sizeof version);
    return version;
  }
  static void set_header(std::byte* record, std::uint64_t id, std::int64_t version) {
    std::memcpy(record, &id, sizeof id);
    std::memcpy(record + sizeof id, &version, sizeof version);
  }

  // The bits below those of the segment. The ids of a shard share the lowest bits of the hash.
  static std::uint32_t index_bits(std::uint64_t hash) {
    return static_cast<std::uint32_t>(hash << (64 - kSegmentShift) >> 32);
  }

  Segment& segment_of(std::uint64_t hash) { return segments_[hash >> kSegmentShift]; }
  const Segment& segment_of(std::uint64_t hash) const { return segments_[hash >> kSegmentShift]; }

  std::size_t slab_rows() const { return std::size_t{1} << slab_shift_; }

  std::byte* at(const Segment& segment, std::size_t slot) const {
    return segment.slabs[slot >> slab_shift_].data() + (slot & (slab_rows() - 1)) * stride_;
  }

  std::byte* find(const Segment& segment, std::uint64_t hash, std::uint64_t id) const {
    std::byte* record = nullptr;
    segment.index.find(index_bits(hash), [&](const Entry& entry) {
      record = at(segment, entry.slot_plus_one - 1);
      if (id_of(record) == id) return true;
      record = nullptr;
      return false;
    });
    return record;
  }

  void put(Segment& segment, std::byte* record, std::int64_t version, const void* row) {
    segment.trainings += trainings_of(version) - trainings_of(version_of(record));
    set_header(record, id_of(record), version);
    std::memcpy(record + kHeaderBytes, row, width_ * sizeof(float));
  }

  std::byte* insert(Segment& segment, std::uint64_t hash, std::uint64_t id) {
    const std::size_t slot = vacant_slot(segment);
    segment.index.insert({index_bits(hash), static_cast<std::uint32_t>(slot + 1)});
    std::byte* record = at(segment, slot);
    set_header(record, id, 0);
    return record;
  }

  std::size_t vacant_slot(Segment& segment) const {
    if (!segment.vacant.empty()) {
      const std::size_t slot = segment.vacant.back();
      segment.vacant.pop_back();
      return slot;
    }
    if (segment.slots == segment.slabs.size() * slab_rows()) segment.slabs.emplace_back(slab_rows() * stride_);
    return segment.slots++;
  }

  void remove(Segment& segment, std::uint64_t hash, std::byte* record) {
    const Entry* const entry = segment.index.find(
        index_bits(hash), [&](const Entry& other) { return at(segment, other.slot_plus_one - 1) == record; });
    segment.vacant.push_back(entry->slot_plus_one - 1);
    segment.index.erase(entry);
    segment.trainings -= trainings_of(version_of(record));
    set_header(record, id_of(record), 0);
  }

  template <typename Number, typename Of>
  Number sum(const Of& of) const {
    Number total = 0;
    for (const Segment& segment : segments_) {
      const std::lock_guard lock(segment.mutex);
      total += of(segment);
    }
    return total;
  }

  std::size_t width_;
  std::size_t stride_;  // the bytes of a record
  int slab_shift_ = 0;
  std::array<Segment, kSegments> segments_;
};

}  // namespace esd::rows
