#include "engine/batch.h"

#include <algorithm>
#include <utility>

#include "common/mix64.h"

namespace esd {
namespace {

constexpr std::size_t kMinTable = 1024;
constexpr std::size_t kAhead = 32;  // ids hashed and prefetched ahead of the one at hand

}  // namespace

void BatchPreparer::prepare(const std::uint64_t* ids, std::size_t samples, std::size_t fields, StateIndex& index,
                            PreparedBatch& batch) {
  batch.samples = samples;
  batch.fields = fields;
  find_distinct(ids, batch);
  renumber_ascending(batch);
  batch.rows.resize(batch.distinct());
  index.find_or_add(batch.ids.data(), batch.distinct(), batch.rows.data());
}

// Numbers ids by first appearance. Repeats within a sample are flagged in `once`.
void BatchPreparer::find_distinct(const std::uint64_t* ids, PreparedBatch& batch) {
  const std::size_t total = batch.samples * batch.fields;
  batch.ids.clear();
  batch.numbers.resize(total);
  batch.once.clear();
  batch.unique_fields.assign(batch.samples, static_cast<std::uint32_t>(batch.fields));
  if (total == 0) return;
  if (table_.empty()) table_.resize(kMinTable);
  if (batch.samples > 0xffffffffu - first_sample_) {
    std::fill(table_.begin(), table_.end(), Slot{});
    first_sample_ = 1;
  }

  std::uint64_t hashes[kAhead];
  for (std::size_t at = 0; at < std::min(kAhead, total); ++at) hashes[at] = mix64(ids[at]);
  std::vector<std::pair<std::size_t, std::size_t>> repeats;  // (sample, position in [k, F])
  batch.ids.resize(total);
  std::uint32_t distinct = 0;
  std::size_t at = 0;
  for (std::size_t sample = 0; sample < batch.samples; ++sample) {
    const std::uint32_t now = first_sample_ + static_cast<std::uint32_t>(sample);
    if ((distinct + batch.fields) * 2 > table_.size()) grow_table(distinct + batch.fields);
    for (std::size_t field = 0; field < batch.fields; ++field, ++at) {
      const std::size_t mask = table_.size() - 1;
      std::size_t place = hashes[at % kAhead] & mask;
      if (at + kAhead < total) {
        hashes[at % kAhead] = mix64(ids[at + kAhead]);
        __builtin_prefetch(&table_[hashes[at % kAhead] & mask], 1);
      }
      const std::uint64_t id = ids[at];
      while (table_[place].seen >= first_sample_ && table_[place].id != id) place = (place + 1) & mask;
      // No branch on whether the id is new: it would be mispredicted half the time.
      Slot& slot = table_[place];
      const bool is_new = slot.seen < first_sample_;
      const std::uint32_t number = is_new ? distinct : slot.number;
      if (slot.seen == now) repeats.emplace_back(sample, at);
      slot = {id, number, now};
      batch.ids[distinct] = id;
      batch.numbers[at] = number;
      distinct += is_new;
    }
  }
  batch.ids.resize(distinct);
  first_sample_ += static_cast<std::uint32_t>(batch.samples);

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

void BatchPreparer::grow_table(std::size_t ids) {
  std::size_t size = table_.size();
  while (size < 4 * ids) size *= 2;
  HugeVector<Slot> old(size);
  old.swap(table_);
  for (const Slot& slot : old) {
    if (slot.seen < first_sample_) continue;
    std::size_t place = mix64(slot.id) & (table_.size() - 1);
    while (table_[place].seen) place = (place + 1) & (table_.size() - 1);
    table_[place] = slot;
  }
}

}  // namespace esd
