#include "engine/plan/worker_lists.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/rows/row_state.h"

namespace esd {
namespace {

// Reserves columns for the pushes of one payload, given by Timing, by `reserve`.
template <typename Reserve>
TransferSpans reserve_pushes(const DraftList<Push>* pushes, Arena& arena, Reserve reserve) {
  const DraftList<Push>&early = pushes[kEarly], &late = pushes[kLate];
  return reserve(arena, early.size() + late.size(), early.size());
}

// Which of some transfers go directly, told one after the other.
class DirectDraft {
 public:
  void add(bool direct, unsigned peer) {
    if (direct) {
      places_.push_back(next_);
      peers_.push_back(peer);
    }
    ++next_;
  }

  DirectSpans write(Arena& arena) const { return {append(arena, places_), append(arena, peers_)}; }

 private:
  static Span append(Arena& arena, const std::vector<std::uint32_t>& values) {
    const Span span = reserve_column(arena.u32, values.size());
    std::copy(values.begin(), values.end(), arena.u32.data() + span.begin);
    return span;
  }

  std::vector<std::uint32_t> places_, peers_;
  std::uint32_t next_ = 0;
};

}  // namespace

void WorkerLists::clear() {
  needs.clear();
  outdated.clear();
  for (const Payload payload : {kRow, kGradient}) {
    for (const Timing timing : {kLate, kEarly}) pushes[payload][timing].clear();
  }
}

void WorkerLists::write_needs(const PreparedBatch& batch, const Trainers& trainers, Arena& arena, WorkerPlan& plan) {
  plan.unique_ids = reserve_column(arena.u64, needs.size());
  plan.unique_contributors = reserve_column(arena.sets, needs.size());
  plan.unique_versions = reserve_column(arena.i64, needs.size());
  plan.unique_slots = reserve_column(arena.u32, needs.size());
  std::uint64_t* ids = arena.u64.data() + plan.unique_ids.begin;
  WorkerSet* contributors = arena.sets.data() + plan.unique_contributors.begin;
  std::int64_t* versions = arena.i64.data() + plan.unique_versions.begin;
  SlotIndex* slots = arena.u32.data() + plan.unique_slots.begin;
  cached.resize(needs.size());
  for (const Timing timing : {kLate, kEarly}) {
    missing[timing].resize(needs.size());
    pulls[timing].resize(needs.size());
  }
  SlotIndex* const slots_cached = cached.data();
  NeedIndex* const rows_missing[] = {missing[kLate].data(), missing[kEarly].data()};
  NeedIndex* const rows_pulled[] = {pulls[kLate].data(), pulls[kEarly].data()};
  std::size_t end_cached = 0, end_missing[2] = {}, end_pulled[2] = {};
  // Whether a row is cached can hardly be predicted, so nothing branches on it.
  const Need* const list = needs.begin();
  const RowState* const states = batch.states.data();
  const auto count = static_cast<NeedIndex>(needs.size());
  for (NeedIndex i = 0; i < count; ++i) {
    const auto [x, slot, pulled, timing] = list[i];
    ids[i] = states[x].id;
    contributors[i] = trainers[x];
    versions[i] = states[x].full_version();
    slots[i] = slots_cached[end_cached] = slot;
    rows_missing[timing][end_missing[timing]] = rows_pulled[timing][end_pulled[timing]] = i;
    const bool is_missing = slot == kNoSlot;
    end_cached += !is_missing;
    end_missing[timing] += is_missing;
    end_pulled[timing] += pulled;
  }
  cached.resize(end_cached);
  for (const Timing timing : {kLate, kEarly}) {
    missing[timing].resize(end_missing[timing]);
    pulls[timing].resize(end_pulled[timing]);
  }
}

void WorkerLists::write_pushes(const PreparedBatch& batch, const CopyDirectory& directory, Arena& arena,
                               WorkerPlan& plan) const {
  const RowState* const states = batch.states.data();
  plan.update_rows = reserve_pushes(pushes[kRow], arena, reserve_transfers);
  TransferWriter rows(arena, plan.update_rows);
  for (const Timing timing : {kEarly, kLate}) {
    for (const auto [x, slot] : pushes[kRow][timing]) {
      rows.write(timing, states[x].id, slot, states[x].full_version());
    }
  }

  plan.update_gradients = reserve_pushes(pushes[kGradient], arena, reserve_gradients);
  TransferWriter gradients(arena, plan.update_gradients);
  WorkerSet* const contributors = arena.sets.data() + plan.update_gradients.contributors.begin;
  std::int64_t* const steps = arena.i64.data() + plan.update_gradients.steps.begin;
  for (const Timing timing : {kEarly, kLate}) {
    for (const auto [x, slot] : pushes[kGradient][timing]) {
      const std::size_t at = gradients.write(timing, states[x].id, slot, states[x].full_version());
      contributors[at] = directory.contributors(states[x]);
      steps[at] = states[x].last_use + 1;
    }
  }
}

void WorkerLists::write_pulls(const PreparedBatch& batch, const RowSizes& sizes, bool continued, Arena& arena,
                              WorkerPlan& plan) const {
  plan.pulls = reserve_transfers(arena, pulls[kEarly].size() + pulls[kLate].size(), pulls[kEarly].size());
  plan.stateless_pulls = zero_column(arena.u32, sizes.tables());
  plan.initial_pulls = zero_column(arena.u32, sizes.tables());
  TransferWriter writer(arena, plan.pulls);
  const std::uint64_t* ids = arena.u64.data() + plan.unique_ids.begin;
  const SlotIndex* slots = arena.u32.data() + plan.unique_slots.begin;
  const std::int64_t* versions = arena.i64.data() + plan.unique_versions.begin;
  const WorkerSet* contributors = arena.sets.data() + plan.unique_contributors.begin;
  for (const Timing timing : {kEarly, kLate}) {
    for (const NeedIndex i : pulls[timing]) writer.write(timing, ids[i], slots[i], versions[i]);
  }
  const auto count = [&](Span counted, auto counts) {
    std::uint32_t* const of_tables = arena.u32.data() + counted.begin;
    for (const NeedList& list : pulls) {
      if (sizes.uniform()) {
        const auto found = std::count_if(list.begin(), list.end(), counts);
        of_tables[0] += static_cast<std::uint32_t>(found);
      } else {
        for (const NeedIndex i : list) of_tables[sizes.table_of(ids[i])] += counts(i);
      }
    }
  };
  const auto count_both = [&](auto trainings) {
    count(plan.stateless_pulls,
          [&](NeedIndex i) { return pulled_stateless(contributors[i], versions[i], trainings(i)); });
    count(plan.initial_pulls, [&](NeedIndex i) { return pulled_initial(versions[i], trainings(i)); });
  };
  if (continued) {
    count_both([&](NeedIndex i) -> std::uint32_t { return batch.states[needs[i].row].trainings; });
  } else {
    count_both([](NeedIndex) -> std::uint32_t { return 0; });
  }
}

void WorkerLists::write_samples(const std::vector<SampleIndex>& samples, const PreparedBatch& batch, Arena& arena,
                                WorkerPlan& plan, std::vector<NeedIndex>& need_of) const {
  plan.positions = reserve_column(arena.u32, samples.size());
  std::copy(samples.begin(), samples.end(), arena.u32.data() + plan.positions.begin);

  need_of.resize(batch.distinct());  // by BatchIndex
  for (NeedIndex i = 0; i < needs.size(); ++i) need_of[needs[i].row] = i;
  std::size_t ids = samples.size() * batch.fields;
  if (!batch.begins.empty()) {
    ids = 0;
    for (const SampleIndex sample : samples) ids += batch.begin(sample + std::size_t{1}) - batch.begin(sample);
  }
  plan.inverse = reserve_column(arena.u32, ids);
  NeedIndex* inverse = arena.u32.data() + plan.inverse.begin;
  for (const SampleIndex sample : samples) {
    const BatchIndex* const end = batch.indices.data() + batch.begin(sample + std::size_t{1});
    for (const BatchIndex* at = batch.indices.data() + batch.begin(sample); at < end; ++at) *inverse++ = need_of[*at];
  }
}

void WorkerLists::write_direct_pushes(const PreparedBatch& batch, const Trainers& trainers, Arena& arena,
                                      WorkerPlan& plan) {
  DirectDraft direct;
  for (const Timing timing : {kEarly, kLate}) {
    for (const Push& push : pushes[kRow][timing]) {
      const WorkerSet training = trainers[push.row];
      direct.add(!training.several(), training.first());
    }
  }
  plan.direct_pushes = direct.write(arena);
  senders.clear();
  for (const Need& need : needs) {
    const RowState& row = batch.states[need.row];
    const bool sent = need.pulled && row.kind == kOwned && !trainers[need.row].several();
    senders.push_back(sent ? static_cast<std::uint8_t>(row.holders.first()) : kNoSender);
  }
}

void WorkerLists::write_direct_pulls(Arena& arena, WorkerPlan& plan) const {
  DirectDraft direct;
  for (const Timing timing : {kEarly, kLate}) {
    for (const NeedIndex i : pulls[timing]) direct.add(senders[i] != kNoSender, senders[i]);
  }
  plan.direct_pulls = direct.write(arena);
}

void WorkerLists::delay_pulls(std::size_t from, std::size_t to) {
  const auto first = missing[kEarly].begin() + static_cast<std::ptrdiff_t>(from);
  const auto last = missing[kEarly].begin() + static_cast<std::ptrdiff_t>(to);
  NeedList early, late;
  std::set_difference(pulls[kEarly].begin(), pulls[kEarly].end(), first, last, std::back_inserter(early));
  std::merge(pulls[kLate].begin(), pulls[kLate].end(), first, last, std::back_inserter(late));
  pulls[kEarly] = std::move(early);
  pulls[kLate] = std::move(late);
}

std::uint64_t WorkerLists::size_of(const NeedList& list, const PreparedBatch& batch) const {
  if (batch.sizes.empty()) return list.size();
  std::uint64_t size = 0;
  for (const NeedIndex i : list) size += batch.sizes[needs[i].row];
  return size;
}

}  // namespace esd
