#include "engine/batch/admission.h"

#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "common/mix64.h"
#include "engine/rows/index_types.h"

namespace esd {

Admission::Admission(std::vector<std::uint32_t> afters, std::uint64_t seed)
    : afters_(std::move(afters)), seed_(mix64(seed)) {
  std::uint32_t highest = 1;
  for (const std::uint32_t each : afters_) {
    if (each < 1 || each > kMostAfter) {
      throw std::invalid_argument("an id is admitted in iteration " + std::to_string(each) + ", it must be in 1.." +
                                  std::to_string(kMostAfter));
    }
    highest = std::max(highest, each);
    if (each > 1) lowest_after_ = lowest_after_ == 0 ? each : std::min(lowest_after_, each);
  }
  if (highest == 1) throw std::invalid_argument("all ids are admitted at once: there is nothing to count");
  while (highest >> bits_ != 0) bits_ *= 2;
  row_cells_ = static_cast<std::uint32_t>(kBytes * 8 / bits_ / kRows);
  words_.reset(static_cast<std::uint64_t*>(std::calloc(kWords, sizeof(std::uint64_t))));
  if (words_ == nullptr) throw std::bad_alloc();
}

// Two halves of one hash give the cells of all rows (Kirsch and Mitzenmacher, "Less Hashing, Same Performance: Building
// a Better Bloom Filter", ESA 2006).
Admission::Cells Admission::cells_of(std::uint64_t id) const {
  const std::uint64_t hash = mix64(id ^ seed_);
  const auto first = static_cast<std::uint32_t>(hash), step = static_cast<std::uint32_t>(hash >> 32) | 1;
  Cells cells;
  for (std::uint32_t row = 0; row < kRows; ++row) {
    cells[row] = row * row_cells_ + ((first + row * step) & (row_cells_ - 1));
  }
  return cells;
}

std::uint32_t Admission::read(std::uint32_t cell) const {
  const unsigned of_word = 64 / bits_;
  return words_[cell / of_word] >> cell % of_word * bits_ & ((1u << bits_) - 1);
}

std::uint32_t Admission::lowest(const Cells& cells) const {
  std::uint32_t count = read(cells[0]);
  for (std::size_t row = 1; row < kRows; ++row) count = std::min(count, read(cells[row]));
  return count;
}

void Admission::raise(const Cells& cells, std::uint32_t count) {
  const unsigned of_word = 64 / bits_;
  for (std::size_t row = 0; row < kRows; ++row) {
    const std::uint32_t before = read(cells[row]);
    if (before >= count) continue;
    words_[cells[row] / of_word] += std::uint64_t{count - before} << cells[row] % of_word * bits_;
    full_[row] += before < lowest_after_ - 1 && count >= lowest_after_ - 1;
  }
}

// Finds the distinct ids of a batch, and their cells, which the processor then fetches all at once.
void Admission::find(const SampleIds& ids, BatchIds& batch) {
  finder_.find(ids, batch);
  const bool several = afters_.size() > 1;
  const auto foreign = std::find_if(batch.ids.begin(), batch.ids.end(),
                                    [&](auto id) { return several && table_in(id) >= afters_.size(); });
  if (foreign != batch.ids.end()) {
    throw std::invalid_argument("id " + std::to_string(*foreign) + " is of table " +
                                std::to_string(table_in(*foreign)) + ", there are " + std::to_string(afters_.size()));
  }
  cells_.resize(batch.distinct());
  std::transform(batch.ids.begin(), batch.ids.end(), cells_.begin(), [this](auto id) { return cells_of(id); });
}

// Divides the ids of a batch; `admits(id, cells)` decides each distinct id once, in ascending order.
template <typename Admits>
void Admission::divide(const SampleIds& ids, AdmittedIds& divided, Admits admits) {
  constexpr std::size_t kAhead = 16;  // ids ahead whose cells are prefetched
  InitialIds& initial = divided.initial;
  find(ids, initial.batch);
  const std::size_t distinct = initial.batch.distinct();
  initial.ids.clear();
  initial.places.resize(distinct);
  for (std::size_t x = 0; x < distinct; ++x) {
    for (const std::uint32_t cell : cells_[std::min(x + kAhead, distinct - 1)]) {
      __builtin_prefetch(words_.get() + cell / (64 / bits_));
    }
    const std::uint64_t id = initial.batch.ids[x];
    initial.places[x] = InitialIds::kAdmitted;
    if (after(id) > 1 && !admits(id, cells_[x])) {
      initial.places[x] = static_cast<BatchIndex>(initial.ids.size());
      initial.ids.push_back(id);
    }
  }
  divided.ids.clear();
  divided.lengths.assign(ids.samples * ids.fields, 0);
  std::size_t i = 0;
  for (std::size_t list = 0; list < divided.lengths.size(); ++list) {
    for (const std::size_t end = i + (ids.lengths == nullptr ? 1 : ids.lengths[list]); i < end; ++i) {
      if (initial.places[initial.batch.indices[i]] != InitialIds::kAdmitted) continue;
      divided.ids.push_back(ids.ids[i]);
      ++divided.lengths[list];
    }
  }
}

void Admission::count(const SampleIds& ids, AdmittedIds& divided) {
  divided.newly = 0;
  divide(ids, divided, [&](std::uint64_t id, const Cells& cells) {
    const std::uint32_t count = lowest(cells), needed = after(id);
    if (count >= needed) return true;
    raise(cells, count + 1);
    divided.newly += count + 1 == needed;
    return count + 1 == needed;
  });
}

void Admission::expect(const SampleIds& ids, AdmittedIds& divided) {
  divide(ids, divided, [&](std::uint64_t id, const Cells& cells) { return lowest(cells) + 1 >= after(id); });
}

double Admission::error() const {
  double share = 1;
  for (const std::uint64_t cells : full_) share *= static_cast<double>(cells) / row_cells_;
  return share;
}

}  // namespace esd
