#include "engine/rows/state_index.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <stdexcept>
#include <utility>

#include "common/mix64.h"
#include "engine/memory/huge_pages.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace esd {
namespace {

constexpr std::size_t kStage = 32;  // ids between two stages of a look-up

// Disjoint parts of the hash: top bits the segment, middle bits the bucket, low bits the tag.
std::uint32_t bucket_of(std::uint64_t hash, std::uint32_t bucket_count) {
  return static_cast<std::uint32_t>((std::uint64_t{static_cast<std::uint32_t>(hash >> 20)} * bucket_count) >> 32);
}

std::uint32_t next_bucket(std::uint32_t bucket, std::uint32_t bucket_count) {
  return bucket + 1 < bucket_count ? bucket + 1 : 0;
}

std::uint8_t tag_of(std::uint64_t hash) { return static_cast<std::uint8_t>(hash | 0x80); }

// Which of the 16 bytes from `bytes` on equal `tag`, as bits.
unsigned equal_bytes(const void* bytes, std::uint8_t tag) {
#ifdef __SSE2__
  const __m128i values = _mm_loadu_si128(static_cast<const __m128i*>(bytes));
  return static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(values, _mm_set1_epi8(static_cast<char>(tag)))));
#else
  unsigned bits = 0;
  for (unsigned i = 0; i < 16; ++i) bits |= unsigned{static_cast<const std::uint8_t*>(bytes)[i] == tag} << i;
  return bits;
#endif
}

}  // namespace

StateIndex::StateIndex() : segments_(std::size_t{1} << kSegmentBits) {}

// The bytes behind the tags never match: the size and the rows that passed are below 0x80, and the unused ones are 0.
unsigned StateIndex::matches(const Bucket& bucket, std::uint8_t tag) { return equal_bytes(&bucket, tag); }

const StateIndex::Bucket* StateIndex::first_bucket(std::uint64_t hash) const {
  const Segment& segment = segments_[hash >> (64 - kSegmentBits)];
  return segment.bucket_count ? &segment.buckets[bucket_of(hash, segment.bucket_count)] : nullptr;
}

RowNumber StateIndex::find(std::uint64_t id) const { return find(id, mix64(id)); }

RowNumber StateIndex::find(std::uint64_t id, std::uint64_t hash) const {
  const Segment& segment = segments_[hash >> (64 - kSegmentBits)];
  const std::uint8_t tag = tag_of(hash);
  std::uint32_t b = bucket_of(hash, segment.bucket_count);
  for (std::uint32_t left = segment.bucket_count; left > 0; --left, b = next_bucket(b, segment.bucket_count)) {
    const Bucket& bucket = segment.buckets[b];
    for (unsigned found = matches(bucket, tag); found; found &= found - 1) {
      const RowNumber row = bucket.rows[__builtin_ctz(found)];
      if ((*this)[row].id == id) return row;
    }
    if (bucket.passed == 0) break;
  }
  return kNoRow;
}

RowNumber StateIndex::find_or_add(std::uint64_t id) { return find_or_add(id, mix64(id)); }

RowNumber StateIndex::find_or_add(std::uint64_t id, std::uint64_t hash) {
  const RowNumber found = find(id, hash);
  if (found != kNoRow) return found;
  const std::size_t segment_number = hash >> (64 - kSegmentBits);
  Segment& segment = segments_[segment_number];
  if ((segment.size + 1) * 5 > segment.bucket_count * kBucketRows * 4) grow(segment_number);
  const RowNumber row = append(id);
  add(segment.buckets.get(), segment.bucket_count, hash, row);
  ++segment.size;
  return row;
}

// Puts a row that is not there into the first bucket with room; there is one, at any load that `grow` leaves.
void StateIndex::add(Bucket* buckets, std::uint32_t count, std::uint64_t hash, RowNumber row) {
  std::uint32_t b = bucket_of(hash, count);
  for (; buckets[b].size == kBucketRows; b = next_bucket(b, count)) {
    if (buckets[b].passed < kManyPassed) ++buckets[b].passed;
  }
  buckets[b].tags[buckets[b].size] = tag_of(hash);
  buckets[b].rows[buckets[b].size++] = row;
}

// There are three stages, some ids apart, so that what each stage reads has been fetched: the bucket, the row that it
// likely names, the row itself.
void StateIndex::check_out(const std::uint64_t* ids, std::size_t count, RowNumber* rows, RowState* states) {
  std::uint64_t hashes[3][kStage];
  for (std::size_t stage = 0, begin = 0; begin < count + 2 * kStage; ++stage, begin += kStage) {
    const auto ids_from = [count](std::size_t first) { return std::min(kStage, count - first); };
    if (begin < count) prefetch_buckets(ids + begin, ids_from(begin), hashes[stage % 3]);
    if (begin >= kStage && begin - kStage < count) {
      const std::size_t first = begin - kStage;
      guess_rows(hashes[(stage + 2) % 3], ids_from(first), rows + first);
    }
    if (begin < 2 * kStage) continue;
    const std::size_t first = begin - 2 * kStage, end = first + ids_from(first);
    for (std::size_t i = first; i < end; ++i) {
      if (rows[i] == kNoRow || !holds(rows[i], ids[i])) {
        try {
          rows[i] = find_or_add(ids[i], hashes[(stage + 1) % 3][i - first]);
        } catch (...) {  // there is no memory: nothing stays checked out
          while (i > 0) --i, (*this)[rows[i]] = states[i];
          throw;
        }
      }
      check_out(rows[i], i, states[i]);
    }
  }
}

void StateIndex::prefetch_buckets(const std::uint64_t* ids, std::size_t count, std::uint64_t* hashes) const {
  for (std::size_t i = 0; i < count; ++i) {
    hashes[i] = mix64(ids[i]);
    __builtin_prefetch(first_bucket(hashes[i]));
  }
}

// Guesses the first row with the tag of the id, or any row where there is none, since whether there is can hardly be
// predicted; kNoRow where there is no bucket.
void StateIndex::guess_rows(const std::uint64_t* hashes, std::size_t count, RowNumber* rows) const {
  for (std::size_t i = 0; i < count; ++i) {
    const Bucket* bucket = first_bucket(hashes[i]);
    rows[i] = kNoRow;
    if (!bucket || size_ == 0) continue;
    const unsigned found = matches(*bucket, tag_of(hashes[i]));
    rows[i] = bucket->rows[__builtin_ctz(found | 1u << (kBucketRows - 1))];
    prefetch(rows[i]);
  }
}

void StateIndex::check_out(const std::vector<RowNumber>& rows, std::vector<RowState>& states) {
  states.resize(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) check_out(rows[i], i, states[i]);
}

void StateIndex::check_in(const std::vector<RowNumber>& rows, const std::vector<RowState>& states) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i + kStage < rows.size()) prefetch(rows[i + kStage]);
    (*this)[rows[i]] = states[i];
  }
}

void StateIndex::forget(RowNumber number) {
  RowState& row = (*this)[number];
  const std::uint64_t hash = mix64(row.id);
  Segment& segment = segments_[hash >> (64 - kSegmentBits)];
  for (std::uint32_t b = bucket_of(hash, segment.bucket_count);; b = next_bucket(b, segment.bucket_count)) {
    Bucket& bucket = segment.buckets[b];
    const auto found = std::find(bucket.rows, bucket.rows + bucket.size, number) - bucket.rows;
    if (found == bucket.size) {  // the row passed
      if (bucket.passed < kManyPassed) --bucket.passed;
      continue;
    }
    --bucket.size;
    bucket.tags[found] = bucket.tags[bucket.size];
    bucket.rows[found] = bucket.rows[bucket.size];
    bucket.tags[bucket.size] = 0;
    break;
  }
  --segment.size;
  row = {0, {}, 0, kClean, 0, 0, kUnused, 0, 0, 0};
  unused_.push_back(number);
}

RowNumber StateIndex::append(std::uint64_t id) {
  const RowNumber number = next_number();
  new (&(*this)[number]) RowState{id, {}, 0, kClean, 0, 0, kNowhere, 0, 0, 0};
  return number;
}

void StateIndex::add_gap() {
  const RowNumber number = next_number();
  new (&(*this)[number]) RowState{0, {}, 0, kClean, 0, 0, kUnused, 0, 0, 0};
}

RowNumber StateIndex::next_number() {
  if (!unused_.empty()) {
    const RowNumber number = unused_.back();
    unused_.pop_back();
    if (unused_.size() >= kStage) prefetch(unused_[unused_.size() - kStage]);
    return number;
  }
  if (size_ == kNoRow) throw std::length_error("the state index is full: 2^32 - 1 ids");
  if (size_ % kPageRows == 0) {
    pages_.emplace_back(static_cast<RowState*>(allocate_huge(kPageRows * sizeof(RowState))));
  }
  return size_++;
}

// Doubles a segment. Sizes are 2^(i + offset), the offsets being spread evenly over the segments, so that they do not
// all grow at once.
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
      const RowNumber row = segment.buckets[b].rows[i];
      add(buckets.get(), bucket_count, mix64((*this)[row].id), row);
    }
  }
  table_bytes_ += (bucket_count - segment.bucket_count) * sizeof(Bucket);
  segment.buckets = std::move(buckets);
  segment.bucket_count = bucket_count;
}

std::size_t StateIndex::memory_bytes() const {
  return pages_.size() * kPageRows * sizeof(RowState) + table_bytes_ + segments_.size() * sizeof(Segment) +
         unused_.capacity() * sizeof(RowNumber);
}

}  // namespace esd
