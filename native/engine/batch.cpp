#include "engine/batch.h"

#include <algorithm>
#include <utility>

namespace esd {
namespace {

constexpr unsigned kMinTableBits = 10;
constexpr std::uint32_t kFree = 0xffffffffu;  // no id's number
constexpr std::size_t kAhead = 32;  // ids prefetched ahead of the one at hand

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
  batch.ids.resize(total);
  batch.numbers.resize(total);
  batch.once.clear();
  batch.unique_fields.assign(batch.samples, static_cast<std::uint32_t>(batch.fields));
  last_sample_.resize(total);
  std::fill(table_.begin(), table_.end(), kFree);

  std::vector<std::pair<std::uint32_t, std::size_t>> repeats;  // (sample, position in [k, F])
  std::uint64_t* const distinct_ids = batch.ids.data();
  std::uint32_t distinct = 0;
  std::size_t at = 0;
  for (std::uint32_t sample = 0; sample < batch.samples; ++sample) {
    while ((distinct + batch.fields) * 2 > table_.size()) grow_table(distinct_ids, distinct);
    const auto add = [&, table = table_.data(), last = table_.size() - 1, shift = shift_] {
      const std::uint64_t id = ids[at];
      // In case it is new; then no branch depends on whether it is, which would be mispredicted half the time.
      distinct_ids[distinct] = id;
      std::size_t place = hash(id) >> shift;
      std::uint32_t number = std::min(table[place], distinct);
      while (distinct_ids[number] != id) {
        place = (place + 1) & last;
        number = std::min(table[place], distinct);
      }
      const bool is_new = number == distinct;
      distinct += is_new;
      table[place] = number;
      batch.numbers[at] = number;
      if (!is_new & (last_sample_[number] == sample)) repeats.emplace_back(sample, at);
      last_sample_[number] = sample;
    };
    const std::size_t end = at + batch.fields;
    for (const std::size_t full = std::min(end, total - std::min(kAhead, total)); at < full; ++at) {
      __builtin_prefetch(&table_[hash(ids[at + kAhead]) >> shift_], 1);
      add();
    }
    for (; at < end; ++at) add();
  }
  batch.ids.resize(distinct);

  if (repeats.empty()) return;
  batch.once.assign(total, 0);
  for (const auto& [sample, position] : repeats) {
    --batch.unique_fields[sample];
    batch.once[position] = 1;  // renumber_ascending turns the flags into numbers
  }
}

void BatchPreparer::renumber_ascending(PreparedBatch& batch) {
  by_id_.resize(batch.distinct());
  for (std::uint32_t i = 0; i < by_id_.size(); ++i) by_id_[i] = {batch.ids[i], i};
  sorter_.sort(by_id_);
  rank_.resize(by_id_.size());
  for (std::uint32_t i = 0; i < by_id_.size(); ++i) {
    batch.ids[i] = by_id_[i].id;
    rank_[by_id_[i].first_number] = i;
  }
  for (std::uint32_t& number : batch.numbers) number = rank_[number];
  for (std::size_t at = 0; at < batch.once.size(); ++at) {
    batch.once[at] = batch.once[at] ? static_cast<std::uint32_t>(batch.distinct()) : batch.numbers[at];
  }
}

void BatchPreparer::grow_table(const std::uint64_t* ids, std::uint32_t distinct) {
  const unsigned bits = table_.empty() ? kMinTableBits : 64 - shift_ + 1;
  table_.assign(std::size_t{1} << bits, kFree);
  shift_ = 64 - bits;
  for (std::uint32_t number = 0; number < distinct; ++number) {
    std::size_t place = hash(ids[number]) >> shift_;
    while (table_[place] != kFree) place = (place + 1) & (table_.size() - 1);
    table_[place] = number;
  }
}

}  // namespace esd
