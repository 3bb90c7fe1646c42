#include "engine/index.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <stdexcept>

#include "common/mix64.h"

namespace esd {
namespace {

constexpr std::uint32_t kNoRow = 0xffffffffu;
constexpr std::size_t kBlock = 64;  // look-ups in flight

// Disjoint parts of the hash: top bits the segment, middle bits the bucket, low bits the tag.
std::uint32_t bucket_of(std::uint64_t hash, std::uint32_t bucket_count) {
  return static_cast<std::uint32_t>((std::uint64_t{static_cast<std::uint32_t>(hash >> 20)} * bucket_count) >> 32);
}

std::uint8_t tag_of(std::uint64_t hash) { return static_cast<std::uint8_t>(hash | 0x80); }

// High bit of every byte of `word` that equals `tag`.
std::uint64_t equal_bytes(std::uint64_t word, std::uint8_t tag) {
  constexpr std::uint64_t kLow = 0x7f7f7f7f7f7f7f7fULL;
  const std::uint64_t difference = word ^ (tag * 0x0101010101010101ULL);
  return ~(((difference & kLow) + kLow) | difference | kLow);
}

// One bit per byte: the high bits of eight bytes, gathered in order.
unsigned gather_high_bits(std::uint64_t word) {
  return static_cast<unsigned>(((word >> 7) * 0x0102040810204080ULL) >> 56);
}

}  // namespace

StateIndex::StateIndex() : segments_(std::size_t{1} << kSegmentBits) {}

unsigned StateIndex::matches(const Bucket& bucket, std::uint8_t tag) {
  std::uint64_t words[2];
  std::memcpy(words, bucket.tags, sizeof words);
  // Bytes after the tags never match: the size is below 0x80, the unused ones are 0.
  return gather_high_bits(equal_bytes(words[0], tag)) | gather_high_bits(equal_bytes(words[1], tag)) << 8;
}

void StateIndex::find_or_add(const std::uint64_t* ids, std::size_t count, std::uint32_t* rows) {
  std::uint64_t hashes[kBlock];
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t size = std::min(kBlock, count - begin);
    for (std::size_t i = 0; i < size; ++i) {
      hashes[i] = mix64(ids[begin + i]);
      const Segment& segment = segments_[hashes[i] >> (64 - kSegmentBits)];
      if (segment.bucket_count) __builtin_prefetch(&segment.buckets[bucket_of(hashes[i], segment.bucket_count)]);
    }
    for (std::size_t i = 0; i < size; ++i) {
      const Segment& segment = segments_[hashes[i] >> (64 - kSegmentBits)];
      rows[begin + i] = kNoRow;
      if (!segment.bucket_count) continue;
      const Bucket& bucket = segment.buckets[bucket_of(hashes[i], segment.bucket_count)];
      if (const unsigned found = matches(bucket, tag_of(hashes[i]))) {
        rows[begin + i] = bucket.rows[__builtin_ctz(found)];
        prefetch(rows[begin + i]);
      }
    }
    for (std::size_t i = 0; i < size; ++i) {
      const std::uint64_t id = ids[begin + i];
      const std::uint32_t likely = rows[begin + i];
      if (likely == kNoRow || (*this)[likely].id != id) rows[begin + i] = find_or_add_one(id, hashes[i]);
    }
  }
}

std::uint32_t StateIndex::find_or_add_one(std::uint64_t id, std::uint64_t hash) {
  const std::size_t segment_number = hash >> (64 - kSegmentBits);
  Segment& segment = segments_[segment_number];
  if ((segment.size + 1) * 5 > segment.bucket_count * kBucketRows * 4) grow(segment_number);

  const std::uint8_t tag = tag_of(hash);
  for (std::uint32_t b = bucket_of(hash, segment.bucket_count);; b = b + 1 < segment.bucket_count ? b + 1 : 0) {
    Bucket& bucket = segment.buckets[b];
    for (unsigned found = matches(bucket, tag); found; found &= found - 1) {
      const std::uint32_t row = bucket.rows[__builtin_ctz(found)];
      if ((*this)[row].id == id) return row;
    }
    if (bucket.size < kBucketRows) {
      const std::uint32_t row = append(id);
      bucket.tags[bucket.size] = tag;
      bucket.rows[bucket.size++] = row;
      ++segment.size;
      return row;
    }
  }
}

void StateIndex::check_out(const std::vector<std::uint32_t>& rows, std::vector<RowState>& states) {
  states.resize(rows.size());
  for (std::uint32_t i = 0; i < rows.size(); ++i) {
    if (i + kBlock < rows.size()) __builtin_prefetch(&(*this)[rows[i + kBlock]], 1);
    RowState& row = (*this)[rows[i]];
    states[i] = row;
    row.place = kInBatch;
    row.slot = i;
  }
}

void StateIndex::check_in(const std::vector<std::uint32_t>& rows, const std::vector<RowState>& states) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i + kBlock < rows.size()) __builtin_prefetch(&(*this)[rows[i + kBlock]], 1);
    (*this)[rows[i]] = states[i];
  }
}

std::uint32_t StateIndex::append(std::uint64_t id) {
  if (size_ == kNoRow) throw std::length_error("the state index is full: 2^32 - 1 ids");
  if (size_ % kPageRows == 0) {
    pages_.emplace_back(static_cast<RowState*>(allocate_huge(kPageRows * sizeof(RowState))));
  }
  new (&(*this)[size_]) RowState{id, 0, 0, kClean, 0, kNowhere, 0};
  return size_++;
}

// Doubles a segment. Sizes are 2^(i + offset), the offset spread evenly over the segments, so that they do not all
// grow at once.
void StateIndex::grow(std::size_t segment_number) {
  Segment& segment = segments_[segment_number];
  const double offset = std::fmod(static_cast<double>(segment_number) * 0.6180339887498949, 1.0);
  std::uint32_t bucket_count = 1;
  for (double exponent = offset; bucket_count <= segment.bucket_count; exponent += 1) {
    bucket_count = static_cast<std::uint32_t>(std::exp2(exponent));
  }
  auto buckets = std::make_unique<Bucket[]>(bucket_count);
  for (std::uint32_t b = 0; b < segment.bucket_count; ++b) {
    for (std::uint8_t i = 0; i < segment.buckets[b].size; ++i) prefetch(segment.buckets[b].rows[i]);
  }
  for (std::uint32_t b = 0; b < segment.bucket_count; ++b) {
    for (std::uint8_t i = 0; i < segment.buckets[b].size; ++i) {
      const std::uint32_t row = segment.buckets[b].rows[i];
      const std::uint64_t hash = mix64((*this)[row].id);
      std::uint32_t to = bucket_of(hash, bucket_count);
      while (buckets[to].size == kBucketRows) to = to + 1 < bucket_count ? to + 1 : 0;
      buckets[to].tags[buckets[to].size] = tag_of(hash);
      buckets[to].rows[buckets[to].size++] = row;
    }
  }
  table_bytes_ += (bucket_count - segment.bucket_count) * sizeof(Bucket);
  segment.buckets = std::move(buckets);
  segment.bucket_count = bucket_count;
}

std::size_t StateIndex::memory_bytes() const {
  return pages_.size() * kPageRows * sizeof(RowState) + table_bytes_ + segments_.size() * sizeof(Segment);
}

}  // namespace esd
