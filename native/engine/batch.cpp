#include "engine/batch.h"

#include <algorithm>
#include <utility>

namespace esd {
namespace {

constexpr unsigned kMinTableBits = 10;
constexpr std::uint32_t kFree = 0xffffffffu;  // no id's number
constexpr std::size_t kTablePerId = 4;  // places, at least: an id that is met for the second time has just one probe
constexpr std::size_t kAhead = 32;      // ids prefetched ahead of the one at hand

// The number in a place of the table, `next` in a free one. In arithmetic, so that it is no branch.
std::uint32_t number_at(std::uint32_t entry, std::uint32_t next) {
  const auto taken = -static_cast<std::uint32_t>(entry != kFree);
  return (entry & taken) | (next & ~taken);
}

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

// Numbers ids by first appearance. Repeats within a sample are flagged in `once`.
void BatchPreparer::find_distinct(const std::uint64_t* ids, PreparedBatch& batch) {
  const std::size_t total = batch.samples * batch.fields;
  batch.numbers.resize(total);
  batch.once.clear();
  batch.unique_fields.assign(batch.samples, static_cast<std::uint32_t>(batch.fields));
  found_.resize(total);
  std::fill(table_.begin(), table_.end(), kFree);

  std::vector<std::pair<std::uint32_t, std::size_t>> repeats;  // (sample, position in [k, F])
  Found* const found = found_.data();
  std::uint32_t* const numbers = batch.numbers.data();
  std::uint32_t distinct = 0;
  for (std::uint32_t sample = 0; sample < batch.samples; ++sample) {
    while ((distinct + batch.fields) * kTablePerId > table_.size()) grow_table(distinct);
    std::uint32_t* const table = table_.data();
    const std::size_t last = table_.size() - 1, begin = sample * batch.fields, end = begin + batch.fields;
    const unsigned shift = shift_;
    for (std::size_t at = begin; at < end; ++at) {
      __builtin_prefetch(&table[hash(ids[std::min(at + kAhead, total - 1)]) >> shift], 1);
      const std::uint64_t id = ids[at];
      // In case it is new; then no branch depends on whether it is, which would be mispredicted half the time.
      found[distinct].id = id;
      std::size_t place = hash(id) >> shift;
      std::uint32_t number = number_at(table[place], distinct);
      while (found[number].id != id) {
        place = (place + 1) & last;
        number = number_at(table[place], distinct);
      }
      const bool is_new = number == distinct;
      distinct += is_new;
      table[place] = numbers[at] = number;
      if (!is_new & (found[number].last_sample == sample)) repeats.emplace_back(sample, at);
      found[number].number = number;
      found[number].last_sample = sample;
    }
  }
  found_.resize(distinct);

  if (repeats.empty()) return;
  batch.once.assign(total, 0);
  for (const auto& [sample, position] : repeats) {
    --batch.unique_fields[sample];
    batch.once[position] = 1;  // renumber_ascending turns the flags into numbers
  }
}

void BatchPreparer::renumber_ascending(PreparedBatch& batch) {
  sorter_.sort(found_);
  batch.ids.resize(found_.size());
  rank_.resize(found_.size());
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
  for (std::uint32_t number = 0; number < distinct; ++number) {
    std::size_t place = hash(found_[number].id) >> shift_;
    while (table_[place] != kFree) place = (place + 1) & (table_.size() - 1);
    table_[place] = number;
  }
}

}  // namespace esd
