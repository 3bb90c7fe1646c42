#include "plans/plan_message.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>
#include <stdexcept>

#include "wire/packed_column.h"
#include "wire/protobuf.h"

namespace esd::plans {
namespace {

using wire::Reader;
using wire::WireType;

void expect(bool usual) {
  if (!usual) throw std::invalid_argument("unusual");
}

// The fields of one message by number, below kFields; none is given twice, and each number has the type that it is
// asked for.
template <std::size_t kFields>
class Fields {
 public:
  Fields(const std::uint8_t* data, std::size_t size) : data_(data) {
    for (Reader reader(data, size); !reader.done();) {
      const Reader::Field field = reader.next();
      expect(field.number < kFields && !fields_[field.number]);
      fields_[field.number] = field;
    }
  }

  std::uint64_t number(std::uint32_t at, std::uint64_t most = std::numeric_limits<std::uint64_t>::max()) const {
    const auto& field = fields_[at];
    if (!field) return 0;
    expect(field->type == WireType::kVarint && field->value <= most);
    return field->value;
  }

  struct Bytes {
    const std::uint8_t* data = nullptr;
    std::size_t size = 0;
  };

  Bytes bytes(std::uint32_t at) const {
    const auto& field = fields_[at];
    if (!field) return {};
    expect(field->type == WireType::kBytes);
    return {data_ + field->offset, field->size};
  }

  // A packed column, of `count` values if that is given.
  template <typename T>
  std::vector<T> column(std::uint32_t at, std::optional<std::size_t> count = std::nullopt) const {
    const Bytes packed = bytes(at);
    const UnpackedColumn column(packed.data, packed.size);
    // Equal values take no bytes, in any number.
    expect(count ? column.count() == *count : column.count() <= 8 * packed.size);
    std::vector<T> values(column.count());
    if (!values.empty()) column.read(values.data());
    return values;
  }

  // `count` values as they lie in memory.
  template <typename T>
  std::vector<T> array(std::uint32_t at, std::uint64_t count) const {
    const Bytes raw = bytes(at);
    expect(raw.size % sizeof(T) == 0 && raw.size / sizeof(T) == count);
    std::vector<T> values(count);
    if (count > 0) std::memcpy(values.data(), raw.data, raw.size);
    return values;
  }

 private:
  const std::uint8_t* data_;
  std::array<std::optional<Reader::Field>, kFields> fields_;
};

constexpr std::uint64_t kMost32 = std::numeric_limits<std::uint32_t>::max();

void expect_below(const std::vector<std::uint32_t>& values, std::uint64_t limit) {
  expect(values.empty() || *std::max_element(values.begin(), values.end()) < limit);
}

void expect_ascending(const std::vector<std::uint32_t>& values) {
  expect(std::adjacent_find(values.begin(), values.end(), std::greater_equal<>()) == values.end());
}

void expect_contributors(const std::vector<std::uint64_t>& contributors) {
  expect(std::find(contributors.begin(), contributors.end(), 0) == contributors.end());
}

// Rows to move. Those that their plan trains, too, are named by their places among the trained ones; one behind these
// stands for the next of the others.
RowColumns read_rows(const std::uint8_t* data, std::size_t size, const RowColumns& trained) {
  const Fields<6> fields(data, size);
  RowColumns others{fields.column<std::uint64_t>(2), {}, {}, fields.number(5, kMost32)};
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
  rows.ids.reserve(places.size());
  rows.slots.reserve(places.size());
  rows.versions.reserve(places.size());
  std::size_t next = 0;
  for (const std::uint32_t place : places) {
    expect(place <= trained.ids.size());
    const bool trains = place < trained.ids.size();
    const RowColumns& from = trains ? trained : others;
    const std::size_t at = trains ? place : next++;
    expect(at < from.ids.size());
    rows.ids.push_back(from.ids[at]);
    rows.slots.push_back(from.slots[at]);
    rows.versions.push_back(from.versions[at]);
  }
  expect(next == others.ids.size());
  return rows;
}

GradientColumns read_gradients(const std::uint8_t* data, std::size_t size, const RowColumns& trained) {
  const Fields<4> fields(data, size);
  const auto transfers = fields.bytes(1);
  GradientColumns gradients{read_rows(transfers.data, transfers.size, trained), {}, {}};
  gradients.contributors = fields.column<std::uint64_t>(2, gradients.rows.ids.size());
  gradients.steps = fields.column<std::int64_t>(3, gradients.rows.ids.size());
  expect_contributors(gradients.contributors);
  return gradients;
}

using PlanFields = Fields<34>;

DirectColumns read_direct(const PlanFields& fields, std::uint32_t places_at, std::uint32_t peers_at, std::size_t rows,
                          std::uint64_t workers) {
  DirectColumns direct{fields.column<std::uint32_t>(places_at), {}};
  direct.peers = fields.column<std::uint32_t>(peers_at, direct.places.size());
  expect_below(direct.places, rows);
  expect_ascending(direct.places);
  expect_below(direct.peers, workers);
  return direct;
}

// What the samples are, and which rows they use.
void read_samples(const PlanFields& fields, const PlanLimits& limits, ReadPlan& plan) {
  plan.samples = fields.number(10, kMost32);
  plan.fields = fields.number(11, limits.features);
  plan.dense_features = fields.number(12, kMost32);
  plan.labels_per_sample = std::max<std::uint64_t>(fields.number(25, kMost32), 1);
  // As they are not packed, their bytes bear out how many samples there are, before any column of these is read.
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
    const std::vector<std::uint32_t> lengths = fields.column<std::uint32_t>(26, ids);
    expect_below(lengths, limits.length + 1);
    plan.lengths.assign(lengths.begin(), lengths.end());
    ids = std::accumulate(lengths.begin(), lengths.end(), std::uint64_t{0});
    expect(ids <= limits.ids);
  }
  plan.inverse = fields.column<std::uint32_t>(19, ids);
  expect_below(plan.inverse, plan.unique.ids.size());
}

void read_unique(const PlanFields& fields, ReadPlan& plan) {
  RowColumns& unique = plan.unique;
  unique.ids = fields.column<std::uint64_t>(15);
  std::uint64_t id = fields.number(14);
  for (std::uint64_t& each : unique.ids) each = id += each;
  unique.slots = fields.column<std::uint32_t>(16, unique.ids.size());
  unique.versions = fields.column<std::int64_t>(17, unique.ids.size());
  plan.unique_contributors = fields.column<std::uint64_t>(18, unique.ids.size());
  expect_contributors(plan.unique_contributors);
  plan.replicated = fields.column<std::uint32_t>(29);
  expect_below(plan.replicated, unique.ids.size());
  expect_ascending(plan.replicated);
  for (const std::uint32_t place : plan.replicated) {
    const std::uint64_t owners = plan.unique_contributors[place];
    expect((owners & (owners - 1)) == 0);
  }
}

ReadPlan read_plan(const std::uint8_t* data, std::size_t size, const PlanLimits& limits) {
  const PlanFields fields(data, size);
  ReadPlan plan;
  plan.epoch = fields.number(1);
  plan.iteration = fields.number(2);
  plan.batch_size = fields.number(3, kMost32);
  plan.forgotten_below = static_cast<std::int64_t>(fields.number(23));
  plan.forgotten = fields.column<std::uint64_t>(22);
  read_unique(fields, plan);
  read_samples(fields, limits, plan);
  const auto rows = [&](std::uint32_t at) {
    const auto bytes = fields.bytes(at);
    return read_rows(bytes.data, bytes.size, plan.unique);
  };
  const auto gradients = [&](std::uint32_t at) {
    const auto bytes = fields.bytes(at);
    return read_gradients(bytes.data, bytes.size, plan.unique);
  };
  plan.update_rows = rows(4);
  plan.update_gradients = gradients(5);
  plan.evict_rows = rows(6);
  plan.evict_gradients = gradients(7);
  plan.drops = rows(8);
  plan.pulls = rows(9);
  plan.discards = rows(24);
  plan.direct_pushes = read_direct(fields, 30, 31, plan.update_rows.ids.size(), limits.workers);
  plan.direct_pulls = read_direct(fields, 32, 33, plan.pulls.ids.size(), limits.workers);
  return plan;
}

}  // namespace

ReadMessage read_message(const std::uint8_t* data, std::size_t size, const PlanLimits& limits) {
  constexpr std::uint32_t kPlans = 4;
  ReadMessage message;
  Reader reader(data, size);
  for (std::size_t begin = 0; !reader.done(); begin = reader.position()) {
    const Reader::Field field = reader.next();
    if (field.number == kPlans) {
      expect(field.type == WireType::kBytes);
      message.plans.push_back(read_plan(data + field.offset, field.size, limits));
    } else {
      message.rest.append(reinterpret_cast<const char*>(data) + begin, reader.position() - begin);
    }
  }
  return message;
}

}  // namespace esd::plans
