#include "engine/plan/worker_lists.h"

#include <algorithm>
#include <iterator>

namespace esd {
namespace {

// Of the pushed rows together.
std::uint64_t size_of(const DraftList<Push>& pushes, const PreparedBatch& batch) {
  if (batch.sizes.empty()) return pushes.size();
  std::uint64_t size = 0;
  for (const Push& push : pushes) size += batch.sizes[push.number];
  return size;
}

}  // namespace

void WorkerTurn::clear() {
  needs.clear();
  losses.clear();
  for (const bool gradients : {false, true}) {
    for (const bool early : {false, true}) pushes[gradients][early].clear();
  }
}

void WorkerTurn::write_needs(const PreparedBatch& batch, const Trainers& trainers, Arena& arena, WorkerPlan& plan) {
  plan.unique_ids = add_column(arena.u64, needs.size());
  plan.unique_contributors = add_column(arena.u64, needs.size());
  plan.unique_versions = add_column(arena.i64, needs.size());
  plan.unique_slots = add_column(arena.u32, needs.size());
  std::uint64_t* ids = arena.u64.data() + plan.unique_ids.begin;
  std::uint64_t* contributors = arena.u64.data() + plan.unique_contributors.begin;
  std::int64_t* versions = arena.i64.data() + plan.unique_versions.begin;
  std::uint32_t* slots = arena.u32.data() + plan.unique_slots.begin;
  for (Numbers* list : {&found, &missing[0], &missing[1], &pulls[0], &pulls[1]}) list->resize(needs.size());
  std::uint32_t* const rows_found = found.data();
  std::uint32_t* const rows_missing[] = {missing[0].data(), missing[1].data()};
  std::uint32_t* const rows_pulled[] = {pulls[0].data(), pulls[1].data()};
  std::size_t end_found = 0, end_missing[2] = {}, end_pulled[2] = {};
  // Whether a row is cached can hardly be predicted, so nothing branches on it.
  const Need* const list = needs.begin();
  const RowState* const states = batch.states.data();
  const auto count = static_cast<std::uint32_t>(needs.size());
  for (std::uint32_t i = 0; i < count; ++i) {
    const auto [x, slot, pulled, early] = list[i];
    ids[i] = states[x].id;
    contributors[i] = trainers[x];
    versions[i] = states[x].full_version();
    slots[i] = rows_found[end_found] = slot;
    rows_missing[early][end_missing[early]] = rows_pulled[early][end_pulled[early]] = i;
    const bool is_missing = slot == kNone;
    end_found += !is_missing;
    end_missing[early] += is_missing;
    end_pulled[early] += pulled;
  }
  found.resize(end_found);
  for (const bool early : {false, true}) {
    missing[early].resize(end_missing[early]);
    pulls[early].resize(end_pulled[early]);
  }
}

void WorkerTurn::write_pushes(const PreparedBatch& batch, const CopyDirectory& directory, Arena& arena,
                              WorkerPlan& plan) const {
  const RowState* const states = batch.states.data();
  const auto& [late_rows, early_rows] = pushes[0];
  plan.update_rows = add_transfers(arena, early_rows.size() + late_rows.size(), early_rows.size());
  plan.update_rows.size = esd::size_of(early_rows, batch) + esd::size_of(late_rows, batch);
  TransferWriter rows(arena, plan.update_rows);
  for (const bool early : {true, false}) {
    for (const auto [x, slot] : pushes[0][early]) rows.write(early, states[x].id, slot, states[x].full_version());
  }

  const auto& [late_gradients, early_gradients] = pushes[1];
  plan.update_gradients = add_gradients(arena, early_gradients.size() + late_gradients.size(), early_gradients.size());
  plan.update_gradients.size = esd::size_of(early_gradients, batch) + esd::size_of(late_gradients, batch);
  TransferWriter gradients(arena, plan.update_gradients);
  std::uint64_t* const contributors = arena.u64.data() + plan.update_gradients.contributors.begin;
  std::int64_t* const steps = arena.i64.data() + plan.update_gradients.steps.begin;
  for (const bool early : {true, false}) {
    for (const auto [x, slot] : pushes[1][early]) {
      const std::size_t at = gradients.write(early, states[x].id, slot, states[x].full_version());
      contributors[at] = directory.contributors(states[x]);
      steps[at] = states[x].last_use + 1;
    }
  }
}

void WorkerTurn::write_pulls(const PreparedBatch& batch, Arena& arena, WorkerPlan& plan) const {
  plan.pulls = add_transfers(arena, pulls[0].size() + pulls[1].size(), pulls[1].size());
  plan.pulls.size = size_of(pulls[0], batch) + size_of(pulls[1], batch);
  TransferWriter writer(arena, plan.pulls);
  const std::uint64_t* ids = arena.u64.data() + plan.unique_ids.begin;
  const std::uint32_t* slots = arena.u32.data() + plan.unique_slots.begin;
  const std::int64_t* versions = arena.i64.data() + plan.unique_versions.begin;
  for (const bool early : {true, false}) {
    for (const std::uint32_t i : pulls[early]) {
      writer.write(early, ids[i], slots[i], versions[i]);
    }
  }
}

void WorkerTurn::write_samples(const std::vector<std::uint32_t>& samples, const PreparedBatch& batch, Arena& arena,
                               WorkerPlan& plan, std::vector<std::uint32_t>& place_in_needs) const {
  plan.positions = add_column(arena.u32, samples.size());
  std::copy(samples.begin(), samples.end(), arena.u32.data() + plan.positions.begin);

  place_in_needs.resize(batch.distinct());
  for (std::uint32_t i = 0; i < needs.size(); ++i) place_in_needs[needs[i].number] = i;
  plan.inverse = add_column(arena.u32, samples.size() * batch.fields);
  std::uint32_t* inverse = arena.u32.data() + plan.inverse.begin;
  for (const std::uint32_t sample : samples) {
    const std::uint32_t* numbers = batch.numbers.data() + sample * batch.fields;
    for (std::size_t f = 0; f < batch.fields; ++f) *inverse++ = place_in_needs[numbers[f]];
  }
}

void WorkerTurn::delay_pulls(std::size_t from) {
  const auto first = missing[1].begin() + static_cast<std::ptrdiff_t>(from), last = missing[1].end();
  Numbers early, late;
  std::set_difference(pulls[1].begin(), pulls[1].end(), first, last, std::back_inserter(early));
  std::merge(pulls[0].begin(), pulls[0].end(), first, last, std::back_inserter(late));
  pulls[1] = std::move(early);
  pulls[0] = std::move(late);
}

std::uint64_t WorkerTurn::size_of(const Numbers& places, const PreparedBatch& batch) const {
  if (batch.sizes.empty()) return places.size();
  std::uint64_t size = 0;
  for (const std::uint32_t i : places) size += batch.sizes[needs[i].number];
  return size;
}

}  // namespace esd
