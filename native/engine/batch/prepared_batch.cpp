#include "engine/batch/prepared_batch.h"

#include <algorithm>

namespace esd {
namespace {

constexpr unsigned kMinTableBits = 10;
constexpr std::uint32_t kFree = 0;      // no id's number
constexpr std::size_t kTablePerId = 4;  // places, at least: an id that is met for the second time has just one probe
constexpr std::size_t kAhead = 32;      // ids prefetched ahead of the one at hand

}  // namespace

void BatchPreparer::prepare(const std::uint64_t* ids, std::size_t samples, std::size_t fields, StateIndex& index,
                            PreparedBatch& batch) {
  batch.samples = samples;
  batch.fields = fields;
  find_distinct(ids, batch);
  renumber_ascending(batch);
  batch.rows.resize(batch.distinct());
  batch.states.resize(batch.distinct());
  index.check_out(batch.ids.data(), batch.distinct(), batch.rows.data(), batch.states.data());
}

// Numbers ids by first appearance, from 1 on. Repeats within a sample are flagged in `once`.
void BatchPreparer::find_distinct(const std::uint64_t* ids, PreparedBatch& batch) {
  const std::size_t total = batch.samples * batch.fields;
  batch.numbers.resize(total);
  batch.once.clear();
  batch.unique_fields.assign(batch.samples, static_cast<std::uint32_t>(batch.fields));
  found_.resize(total + 1);
  repeats_.resize(total + 1);
  std::fill(table_.begin(), table_.end(), kFree);

  Count count{0, 0};
  for (std::size_t begin = 0; begin < total; begin += batch.fields) {
    while ((count.distinct + batch.fields) * kTablePerId > table_.size()) grow_table(count.distinct);
    count = number_sample(ids, begin, batch, count);
  }
  found_.front() = found_[count.distinct];
  found_.resize(count.distinct);

  if (count.repeats == 0) return;
  batch.once.assign(total, 0);
  for (std::size_t i = 0; i < count.repeats; ++i) {
    --batch.unique_fields[repeats_[i] / batch.fields];
    batch.once[repeats_[i]] = 1;  // renumber_ascending turns the flags into numbers
  }
}

// The sample whose ids lie in [k, F] from `begin` on. Whether an id is new, or met in this sample before, is no branch,
// which would be mispredicted half the time: what holds for a new id, and the position of a repeat, are written in any case.
BatchPreparer::Count BatchPreparer::number_sample(const std::uint64_t* ids, std::size_t begin, PreparedBatch& batch,
                                                  Count count) {
  std::uint32_t* const table = table_.data();
  Found* const found = found_.data();
  std::uint32_t* const repeats = repeats_.data();
  std::uint32_t* const numbers = batch.numbers.data();
  const std::size_t last = table_.size() - 1, end = begin + batch.fields, total = batch.numbers.size();
  const auto sample = static_cast<std::uint32_t>(begin);
  const unsigned shift = shift_;
  const std::uint64_t* const ahead = ids + std::min(kAhead, total - end);
  for (std::size_t at = begin; at < end; ++at) {
    __builtin_prefetch(&table[hash(ahead[at]) >> shift], 1);
    const std::uint64_t id = ids[at];
    found[kFree].id = id;  // so that the search ends at a free place
    std::size_t place = hash(id) >> shift;
    while (found[table[place]].id != id) place = (place + 1) & last;
    const std::uint32_t entry = table[place], is_new = entry == kFree;
    count.distinct += is_new;
    const std::uint32_t number = entry | (count.distinct & -is_new);
    table[place] = numbers[at] = number;
    repeats[count.repeats] = static_cast<std::uint32_t>(at);
    count.repeats += ~is_new & (found[number].last_sample == sample);
    found[number] = {id, number, sample};
  }
  return count;
}

void BatchPreparer::renumber_ascending(PreparedBatch& batch) {
  sorter_.sort(found_);
  batch.ids.resize(found_.size());
  rank_.resize(found_.size() + 1);
  const Found* const found = found_.data();
  std::uint32_t* const rank = rank_.data();
  const auto distinct = static_cast<std::uint32_t>(found_.size());
  for (std::uint32_t i = 0; i < distinct; ++i) {
    batch.ids[i] = found[i].id;
    rank[found[i].number] = i;
  }
  for (std::uint32_t& number : batch.numbers) number = rank[number];
  for (std::size_t at = 0; at < batch.once.size(); ++at) {
    batch.once[at] = batch.once[at] ? distinct : batch.numbers[at];
  }
}

void BatchPreparer::grow_table(std::uint32_t distinct) {
  const unsigned bits = table_.empty() ? kMinTableBits : 64 - shift_ + 1;
  table_.assign(std::size_t{1} << bits, kFree);
  shift_ = 64 - bits;
  for (std::uint32_t number = 1; number <= distinct; ++number) {
    std::size_t place = hash(found_[number].id) >> shift_;
    while (table_[place] != kFree) place = (place + 1) & (table_.size() - 1);
    table_[place] = number;
  }
}

}  // namespace esd
