#include "engine/batch/batch_ids.h"

#include <algorithm>
#include <numeric>

namespace esd {
namespace {

constexpr unsigned kMinTableBits = 10;
constexpr std::uint32_t kFree = 0;      // the appearance of no id
constexpr std::size_t kTablePerId = 4;  // positions, at least: an id that is met for the second time has just one probe
constexpr std::size_t kIdsAhead = 32;   // how far ahead of the id at hand the table is prefetched

}  // namespace

void IdFinder::find(const SampleIds& ids, BatchIds& batch) {
  batch.samples = ids.samples;
  batch.fields = ids.fields;
  batch.lengths.clear();
  batch.begins.clear();
  if (ids.lengths != nullptr) find_begins(ids, batch);
  find_distinct(ids.ids, batch);
  number_ascending(batch);
}

void IdFinder::find_begins(const SampleIds& ids, BatchIds& batch) {
  batch.lengths.assign(ids.lengths, ids.lengths + ids.samples * ids.fields);
  batch.begins.reserve(ids.samples + 1);
  batch.begins.push_back(0);
  const std::uint32_t* length = batch.lengths.data();
  for (std::size_t i = 0; i < ids.samples; ++i, length += ids.fields) {
    batch.begins.push_back(std::accumulate(length, length + ids.fields, batch.begins.back()));
  }
}

// Fills `indices` with appearances, for `number_ascending` to turn into batch indices, and flags repeats within a
// sample in `indices_once`.
void IdFinder::find_distinct(const std::uint64_t* ids, BatchIds& batch) {
  const std::size_t total = batch.begin(batch.samples);
  batch.indices.resize(total);
  batch.indices_once.clear();
  batch.ids_per_sample.resize(batch.samples);
  found_.resize(total + 1);
  repeats_.resize(total + 1);
  std::fill(table_.begin(), table_.end(), kFree);

  Count count{0, 0};
  for (std::size_t i = 0, begin = 0; i < batch.samples; ++i) {
    const std::size_t end = batch.begin(i + 1);
    while ((count.distinct + (end - begin)) * kTablePerId > table_.size()) grow_table(count.distinct);
    const std::uint32_t before = count.repeats;
    count = add_sample(ids, begin, end, batch, count);
    batch.ids_per_sample[i] = static_cast<std::uint32_t>(end - begin) - (count.repeats - before);
    begin = end;
  }
  found_.front() = found_[count.distinct];
  found_.resize(count.distinct);

  if (count.repeats == 0) return;
  batch.indices_once.assign(total, 0);
  for (std::size_t i = 0; i < count.repeats; ++i) batch.indices_once[repeats_[i]] = 1;
}

// Adds the sample whose ids lie in [begin, end). Whether an id is new, or its sample has had it before, is no
// branch, which would be mispredicted half the time: what holds for a new id, and the position of a repeat, are written
// in any case.
IdFinder::Count IdFinder::add_sample(const std::uint64_t* ids, std::size_t begin, std::size_t end, BatchIds& batch,
                                     Count count) {
  Appearance* const table = table_.data();
  Found* const found = found_.data();
  std::uint32_t* const repeats = repeats_.data();
  std::uint32_t* const indices = batch.indices.data();
  const std::size_t last = table_.size() - 1, total = batch.indices.size();
  const auto sample = static_cast<std::uint32_t>(begin);
  const unsigned shift = shift_;
  const std::uint64_t* const ahead = ids + std::min(kIdsAhead, total - end);
  for (std::size_t at = begin; at < end; ++at) {
    __builtin_prefetch(&table[hash(ahead[at]) >> shift], 1);
    const std::uint64_t id = ids[at];
    found[kFree].id = id;  // so that the search ends at a free position
    std::size_t position = hash(id) >> shift;
    while (found[table[position]].id != id) position = (position + 1) & last;
    const Appearance entry = table[position], is_new = entry == kFree;
    count.distinct += is_new;
    const Appearance appearance = entry | (count.distinct & -is_new);
    table[position] = indices[at] = appearance;
    repeats[count.repeats] = static_cast<std::uint32_t>(at);
    count.repeats += ~is_new & (found[appearance].last_sample == sample);
    found[appearance] = {id, appearance, sample};
  }
  return count;
}

void IdFinder::number_ascending(BatchIds& batch) {
  sorter_.sort(found_);
  batch.ids.resize(found_.size());
  batch_indices_.resize(found_.size() + 1);
  const Found* const found = found_.data();
  BatchIndex* const batch_indices = batch_indices_.data();
  const auto distinct = static_cast<BatchIndex>(found_.size());
  for (BatchIndex x = 0; x < distinct; ++x) {
    batch.ids[x] = found[x].id;
    batch_indices[found[x].appearance] = x;
  }
  for (std::uint32_t& index : batch.indices) index = batch_indices[index];
  for (std::size_t at = 0; at < batch.indices_once.size(); ++at) {
    batch.indices_once[at] = batch.indices_once[at] ? distinct : batch.indices[at];
  }
}

void IdFinder::grow_table(Appearance distinct) {
  const unsigned bits = table_.empty() ? kMinTableBits : 64 - shift_ + 1;
  table_.assign(std::size_t{1} << bits, kFree);
  shift_ = 64 - bits;
  for (Appearance appearance = 1; appearance <= distinct; ++appearance) {
    std::size_t position = hash(found_[appearance].id) >> shift_;
    while (table_[position] != kFree) position = (position + 1) & (table_.size() - 1);
    table_[position] = appearance;
  }
}

}  // namespace esd
