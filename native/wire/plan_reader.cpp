#include "wire/plan_reader.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "wire/placed_rows.h"
#include "wire/protobuf.h"

namespace esd::wire {
namespace {

constexpr std::uint64_t kMost32 = std::numeric_limits<std::uint32_t>::max();

void expect_below(const std::vector<std::uint32_t>& values, std::uint64_t limit) {
  expect(values.empty() || *std::max_element(values.begin(), values.end()) < limit);
}

void expect_ascending(const std::vector<std::uint32_t>& values) {
  expect(std::adjacent_find(values.begin(), values.end(), std::greater_equal<>()) == values.end());
}

// The set of workers of each row, none of them empty.
template <std::size_t kFields>
SetColumn read_sets(const Fields<kFields>& fields, std::uint32_t number, std::size_t rows) {
  const std::size_t words = fields.claimed(number) == rows ? 1 : 2;
  SetColumn column{fields.template column<std::uint64_t>(number, words * rows), rows};
  const WorkerSets sets = column.sets();
  for (std::size_t i = 0; i < rows; ++i) expect(!sets[i].empty());
  return column;
}

RowSpan span_of(const RowColumns& rows) {
  return {rows.ids.data(), rows.slots.data(), rows.versions.data(), rows.ids.size()};
}

RowColumns read_rows(Bytes message, const RowColumns& trained) {
  const Fields<6> fields(message);
  RowColumns others{fields.column<std::uint64_t>(2), {}, {}, fields.varint(5, kMost32)};
  others.slots = fields.column<std::uint32_t>(3, others.ids.size());
  others.versions = fields.column<std::int64_t>(4, others.ids.size());
  const std::vector<std::uint32_t> places = fields.column<std::uint32_t>(1);
  if (fields.bytes(1).size == 0) {
    expect(others.early <= others.ids.size());
    return others;
  }
  expect(others.early <= places.size());
  RowColumns rows;
  rows.early = others.early;
  rows.ids.resize(places.size());
  rows.slots.resize(places.size());
  rows.versions.resize(places.size());
  place_rows(places.data(), places.size(), span_of(trained), span_of(others),
             [&](std::size_t i, const RowSpan& from, std::size_t at) {
               rows.ids[i] = from.ids[at];
               rows.slots[i] = from.slots[at];
               rows.versions[i] = from.versions[at];
             });
  return rows;
}

GradientColumns read_gradients(Bytes message, const RowColumns& trained) {
  const Fields<4> fields(message);
  GradientColumns gradients{read_rows(fields.bytes(1), trained), {}, {}};
  gradients.contributors = read_sets(fields, 2, gradients.rows.ids.size());
  gradients.steps = fields.column<std::int64_t>(3, gradients.rows.ids.size());
  return gradients;
}

using PlanFields = Fields<40>;

constexpr std::uint64_t kLastRole = 5;  // of DenseRole

DirectColumns read_direct(const PlanFields& fields, std::uint32_t places_at, std::uint32_t peers_at, std::size_t rows,
                          std::uint64_t workers) {
  DirectColumns direct{fields.column<std::uint32_t>(places_at), {}};
  direct.peers = fields.column<std::uint32_t>(peers_at, direct.places.size());
  expect_below(direct.places, rows);
  expect_ascending(direct.places);
  expect_below(direct.peers, workers);
  return direct;
}

// Ascending ids, of which the message has the first one and the difference of each from the id before it.
std::vector<std::uint64_t> read_ids(const PlanFields& fields, std::uint32_t first_at, std::uint32_t differences_at) {
  std::vector<std::uint64_t> ids = fields.column<std::uint64_t>(differences_at);
  std::uint64_t id = fields.varint(first_at);
  for (std::uint64_t& each : ids) each = id += each;
  return ids;
}

// The samples, and the rows that they use.
void read_samples(const PlanFields& fields, const PlanLimits& limits, ReadPlan& plan) {
  plan.samples = fields.varint(10, kMost32);
  plan.fields = fields.varint(11, limits.features);
  plan.dense_features = fields.varint(12, kMost32);
  plan.has_references = fields.bytes(38).size > 0;
  // As these are not packed, their bytes bear out how many samples there are, before any column of them is read.
  if (plan.has_references) plan.references = fields.array<std::uint64_t>(38, plan.samples);
  const std::uint64_t labels = fields.varint(25, kMost32);
  plan.labels_per_sample = plan.has_references ? labels : std::max<std::uint64_t>(labels, 1);
  plan.labels = fields.array<float>(21, plan.samples * plan.labels_per_sample);
  plan.dense = fields.array<float>(20, plan.samples * plan.dense_features);
  plan.has_weights = fields.bytes(27).size > 0;
  if (plan.has_weights) plan.weights = fields.array<float>(27, plan.samples);
  plan.has_groups = fields.bytes(28).size > 0;
  if (plan.has_groups) plan.groups = fields.array<std::uint64_t>(28, plan.samples);
  plan.positions = fields.column<std::uint32_t>(13, plan.samples);
  expect_below(plan.positions, plan.batch_size);

  std::uint64_t ids = plan.samples * plan.fields;
  expect(ids <= limits.ids);
  plan.has_lengths = fields.bytes(26).size > 0;
  if (plan.has_lengths) {
    plan.lengths = fields.column<std::uint32_t>(26, ids);
    expect_below(plan.lengths, limits.length + 1);
    ids = std::accumulate(plan.lengths.begin(), plan.lengths.end(), std::uint64_t{0});
    expect(ids <= limits.ids);
  }
  plan.lists = fields.varint(36, plan.samples);
  expect(plan.lists == 0 || plan.has_lengths);
  plan.initial_ids = read_ids(fields, 34, 35);
  plan.inverse = fields.column<std::uint32_t>(19, ids);
  expect_below(plan.inverse, plan.unique.ids.size() + plan.initial_ids.size());
}

void read_unique(const PlanFields& fields, ReadPlan& plan) {
  RowColumns& unique = plan.unique;
  unique.ids = read_ids(fields, 14, 15);
  unique.slots = fields.column<std::uint32_t>(16, unique.ids.size());
  unique.versions = fields.column<std::int64_t>(17, unique.ids.size());
  plan.unique_contributors = read_sets(fields, 18, unique.ids.size());
  plan.reduced = fields.column<std::uint32_t>(29);
  expect_below(plan.reduced, unique.ids.size());
  expect_ascending(plan.reduced);
  const WorkerSets owners = plan.unique_contributors.sets();
  for (const std::uint32_t place : plan.reduced) expect(!owners[place].several());
}

ReadPlan read_plan(Bytes message, const PlanLimits& limits) {
  const PlanFields fields(message);
  ReadPlan plan;
  plan.epoch = fields.varint(1);
  plan.iteration = fields.varint(2);
  plan.batch_size = fields.varint(3, kMost32);
  plan.forgotten_below = static_cast<std::int64_t>(fields.varint(23));
  plan.forgotten = fields.column<std::uint64_t>(22);
  read_unique(fields, plan);
  read_samples(fields, limits, plan);
  const auto rows = [&](std::uint32_t at) { return read_rows(fields.bytes(at), plan.unique); };
  const auto gradients = [&](std::uint32_t at) { return read_gradients(fields.bytes(at), plan.unique); };
  plan.update_rows = rows(4);
  plan.update_gradients = gradients(5);
  plan.evict_rows = rows(6);
  plan.evict_gradients = gradients(7);
  plan.drops = rows(8);
  plan.pulls = rows(9);
  plan.discards = rows(24);
  plan.direct_pushes = read_direct(fields, 30, 31, plan.update_rows.ids.size(), limits.workers);
  plan.direct_pulls = read_direct(fields, 32, 33, plan.pulls.ids.size(), limits.workers);
  plan.trace_parent = fields.ascii(37);
  plan.dense_role = fields.varint(39, kLastRole);
  return plan;
}

}  // namespace

ReadPlans read_plans(Bytes message, const PlanLimits& limits) {
  constexpr std::uint32_t kPlans = 4;
  ReadPlans read;
  Reader reader(message.data, message.size);
  for (std::size_t begin = 0; !reader.done(); begin = reader.position()) {
    const Reader::Field field = reader.next();
    if (field.number == kPlans) {
      expect(field.type == WireType::kBytes);
      read.plans.push_back(read_plan({message.data + field.offset, field.size}, limits));
    } else {
      read.rest.append(reinterpret_cast<const char*>(message.data) + begin, reader.position() - begin);
    }
  }
  return read;
}

}  // namespace esd::wire
