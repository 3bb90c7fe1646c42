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

// The bytes behind the tags never match: the size is below 0x80, and the unused ones are 0.
unsigned StateIndex::matches(const Bucket& bucket, std::uint8_t tag) { return equal_bytes(&bucket, tag); }

const StateIndex::Bucket* StateIndex::first_bucket(std::uint64_t hash) const {
  const Segment& segment = segments_[hash >> (64 - kSegmentBits)];
  return segment.bucket_count ? &segment.buckets[bucket_of(hash, segment.bucket_count)] : nullptr;
}

RowNumber StateIndex::find(std::uint64_t id) const {
  const std::uint64_t hash = mix64(id);
  const Segment& segment = segments_[hash >> (64 - kSegmentBits)];
  if (segment.bucket_count == 0) return kNoRow;
  const std::uint8_t tag = tag_of(hash);
  for (std::uint32_t b = bucket_of(hash, segment.bucket_count);; b = next_bucket(b, segment.bucket_count)) {
    const Bucket& bucket = segment.buckets[b];
    for (unsigned found = matches(bucket, tag); found; found &= found - 1) {
      const RowNumber row = bucket.rows[__builtin_ctz(found)];
      if (holds(row, id)) return row;
    }
    if (bucket.size < kBucketRows) return kNoRow;
  }
}

RowNumber StateIndex::find_or_add(std::uint64_t id) { return find_or_add(id, mix64(id)); }

RowNumber StateIndex::find_or_add(std::uint64_t id, std::uint64_t hash) {
  const std::size_t segment_number = hash >> (64 - kSegmentBits);
  Segment& segment = segments_[segment_number];
  if ((segment.size + 1) * 5 > segment.bucket_count * kBucketRows * 4) grow(segment_number);

  const std::uint8_t tag = tag_of(hash);
  for (std::uint32_t b = bucket_of(hash, segment.bucket_count);; b = next_bucket(b, segment.bucket_count)) {
    Bucket& bucket = segment.buckets[b];
    for (unsigned found = matches(bucket, tag); found; found &= found - 1) {
      const RowNumber row = bucket.rows[__builtin_ctz(found)];
      if ((*this)[row].id == id) return row;
    }
    if (bucket.size < kBucketRows) {
      const RowNumber row = append(id);
      bucket.tags[bucket.size] = tag;
      bucket.rows[bucket.size++] = row;
      ++segment.size;
      return row;
    }
  }
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
    const Bucket& bucket = segment.buckets[b];
    const auto* const end = bucket.rows + bucket.size;
    const auto* const found = std::find(bucket.rows, end, number);
    if (found == end) continue;
    close_gap(segment, b, static_cast<unsigned>(found - bucket.rows));
    break;
  }
  --segment.size;
  row = {0, {}, 0, kClean, 0, 0, kUnused, 0, 0, 0};
  unused_.push_back(number);
}

// A look-up goes past full buckets only. So where a bucket was full, a row that lies past it for that reason moves into
// the gap.
void StateIndex::close_gap(const Segment& segment, std::uint32_t b, unsigned position) {
  const std::uint32_t count = segment.bucket_count;
  const auto distance = [count](std::uint32_t from, std::uint32_t to) {
    return to >= from ? to - from : to + count - from;
  };
  for (;;) {
    Bucket& bucket = segment.buckets[b];
    const bool was_full = bucket.size == kBucketRows;
    const unsigned last = --bucket.size;
    bucket.tags[position] = bucket.tags[last];
    bucket.rows[position] = bucket.rows[last];
    bucket.tags[last] = 0;
    if (!was_full) return;

    std::uint32_t from = b;
    for (bool found = false; !found;) {
      const bool passed = from == b || segment.buckets[from].size == kBucketRows;
      from = next_bucket(from, count);
      if (!passed || from == b) return;
      const Bucket& other = segment.buckets[from];
      for (position = 0; position < other.size && !found; ++position) {
        const std::uint32_t home = bucket_of(mix64((*this)[other.rows[position]].id), count);
        found = distance(home, from) >= distance(b, from);
      }
    }
    --position;
    bucket.tags[last] = segment.buckets[from].tags[position];
    bucket.rows[last] = segment.buckets[from].rows[position];
    ++bucket.size;
    b = from;
  }
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
      const std::uint64_t hash = mix64((*this)[row].id);
      std::uint32_t to = bucket_of(hash, bucket_count);
      while (buckets[to].size == kBucketRows) to = next_bucket(to, bucket_count);
      buckets[to].tags[buckets[to].size] = tag_of(hash);
      buckets[to].rows[buckets[to].size++] = row;
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
