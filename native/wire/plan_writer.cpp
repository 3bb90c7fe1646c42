#include "wire/plan_writer.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "engine/memory/column.h"
#include "wire/packed_column.h"
#include "wire/protobuf.h"

namespace esd::wire {
namespace {

// Writes the fields of one message.
class Message {
 public:
  void number(unsigned field, std::uint64_t value) {
    if (value == 0) return;
    head(field, WireType::kVarint);
    varint(value);
  }

  template <typename T>
  void column(unsigned field, const T* values, std::size_t count) {
    if (count == 0) return;
    const PackedColumn<T> packed(values, count);
    head(field, WireType::kBytes);
    varint(packed.bytes());
    packed.append_to(bytes_);
  }

  void message(unsigned field, const Message& part) {
    head(field, WireType::kBytes);
    varint(part.bytes_.size());
    bytes_ += part.bytes_;
  }

  // Values as they are, in rows of `width` picked out of a table by `rows`. None if there is no table.
  template <typename T>
  void picked(unsigned field, const T* table, std::size_t width, const std::uint32_t* rows, std::size_t count) {
    const std::size_t row_bytes = width * sizeof(T);
    if (table == nullptr || count * row_bytes == 0) return;
    head(field, WireType::kBytes);
    varint(count * row_bytes);
    for (std::size_t i = 0; i < count; ++i) {
      bytes_.append(reinterpret_cast<const char*>(table + rows[i] * width), row_bytes);
    }
  }

  std::string take() { return std::move(bytes_); }

 private:
  void head(unsigned field, WireType type) { varint(field << 3 | static_cast<unsigned>(type)); }

  void varint(std::uint64_t value) {
    std::uint8_t buffer[10];
    const std::uint8_t* end = write_varint(buffer, value);
    bytes_.append(reinterpret_cast<const char*>(buffer), static_cast<std::size_t>(end - buffer));
  }

  std::string bytes_;
};

// Whether rows to move may be rows that their worker trains in the same iteration.
enum Kind { kMaybeTrained, kNotTrained };

// Encodes the plan of one worker.
class Encoder {
 public:
  Encoder(const Arena& arena, const WorkerPlan& plan)
      : arena_(arena),
        trained_(u64(plan.unique_ids)),
        slots_(u32(plan.unique_slots)),
        versions_(i64(plan.unique_versions)),
        count_(plan.unique_ids.size) {}

  // A row that the worker trains, too, is named by its place among these; id, slot and version are there.
  Message rows(const TransferSpans& transfers, Kind kind) {
    const std::size_t count = transfers.ids.size;
    const std::uint64_t* ids = u64(transfers.ids);
    const std::uint32_t* slots = u32(transfers.slots);
    const std::int64_t* versions = i64(transfers.versions);
    Message message;
    if (kind == kMaybeTrained && find_places(ids, slots, versions, count)) {
      message.column(1, places_.data(), count);
      message.column(2, other_ids_.data(), other_ids_.size());
      message.column(3, other_slots_.data(), other_slots_.size());
      message.column(4, other_versions_.data(), other_versions_.size());
    } else {
      message.column(2, ids, count);
      message.column(3, slots, count);
      message.column(4, versions, count);
    }
    message.number(5, transfers.early);
    return message;
  }

  Message gradients(const TransferSpans& transfers, Kind kind) {
    Message message;
    message.message(1, rows(transfers, kind));
    sets(message, 2, transfers.contributors);
    message.column(3, i64(transfers.steps), transfers.steps.size);
    return message;
  }

  // Ascending ids as the first one and differences.
  void ids(Message& message, Span column, unsigned first_field, unsigned differences_field) {
    if (column.size == 0) return;
    const std::uint64_t* ids = u64(column);
    message.number(first_field, ids[0]);
    other_ids_.resize(column.size);
    other_ids_[0] = 0;
    for (std::size_t i = 1; i < column.size; ++i) other_ids_[i] = ids[i] - ids[i - 1];
    message.column(differences_field, other_ids_.data(), column.size);
  }

  // Sets of workers as their words, the lowest first.
  void sets(Message& message, unsigned field, Span column) const {
    if (column.size == 0) return;
    const WorkerSet* const sets = arena_.sets.data() + column.begin;
    if constexpr (kMaxWorkers <= 64) {
      message.column(field, &sets->bits, column.size);
    } else {
      std::vector<std::uint64_t> words(2 * column.size);
      std::memcpy(words.data(), sets, column.size * sizeof(WorkerSet));
      message.column(field, words.data(), words.size());
    }
  }

  const std::uint64_t* u64(Span span) const { return arena_.u64.data() + span.begin; }
  const std::int64_t* i64(Span span) const { return arena_.i64.data() + span.begin; }
  const std::uint32_t* u32(Span span) const { return arena_.u32.data() + span.begin; }

 private:
  // Fills `places_` and the rows that are not trained. Returns whether any is. Which are trained can hardly be predicted,
  // so nothing branches on it.
  bool find_places(const std::uint64_t* ids, const std::uint32_t* slots, const std::int64_t* versions,
                   std::size_t count) {
    if (count_ == 0) return false;
    places_.resize(count);
    other_ids_.resize(count), other_slots_.resize(count), other_versions_.resize(count);
    std::size_t at = 0, others = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0 && ids[i] < ids[i - 1]) at = 0;  // lists ascend but for where their late rows begin
      at = place_of(ids[i], at);
      const std::size_t found = std::min(at, count_ - 1);
      const bool trained =
          (trained_[found] == ids[i]) & (slots_[found] == slots[i]) & (versions_[found] == versions[i]);
      places_[i] = static_cast<std::uint32_t>(trained ? found : count_);
      other_ids_[others] = ids[i];
      other_slots_[others] = slots[i];
      other_versions_[others] = versions[i];
      others += !trained;
    }
    other_ids_.resize(others), other_slots_.resize(others), other_versions_.resize(others);
    return others < count;
  }

  // Returns the first place from `at` on whose id is not below `id`; compares several ids at once.
  std::size_t place_of(std::uint64_t id, std::size_t at) const {
    constexpr std::size_t kAtOnce = 8;
    while (at + kAtOnce <= count_) {
      std::size_t below = 0;
      for (std::size_t i = 0; i < kAtOnce; ++i) below += trained_[at + i] < id;
      at += below;
      if (below < kAtOnce) return at;
    }
    while (at < count_ && trained_[at] < id) ++at;
    return at;
  }

  const Arena& arena_;
  const std::uint64_t* trained_;
  const std::uint32_t* slots_;
  const std::int64_t* versions_;
  std::size_t count_;

  // Scratch space: the place of each row among the trained rows, and the rows that are not trained.
  Column<std::uint32_t> places_, other_slots_;
  Column<std::uint64_t> other_ids_;
  Column<std::int64_t> other_versions_;
};

}  // namespace

std::string plan_message(const IterationPlans& plans, const Arena& arena, std::size_t worker,
                         const PlanContext& context) {
  const WorkerPlan& plan = plans.workers[worker];
  Encoder encoder(arena, plan);
  const std::size_t samples = plan.positions.size;
  const std::uint32_t* positions = encoder.u32(plan.positions);
  Message message;
  message.number(1, context.epoch);
  message.number(2, plans.iteration);
  message.number(3, context.batch_size);
  message.message(4, encoder.rows(plan.update_rows, kMaybeTrained));
  message.message(5, encoder.gradients(plan.update_gradients, kMaybeTrained));
  message.message(6, encoder.rows(plan.evict_rows, kNotTrained));
  message.message(7, encoder.gradients(plan.evict_gradients, kNotTrained));
  message.message(8, encoder.rows(plan.drops, kNotTrained));
  message.message(9, encoder.rows(plan.pulls, kMaybeTrained));
  message.number(10, samples);
  message.number(11, plans.fields);
  message.number(12, context.dense_features);
  std::vector<std::uint32_t> places(positions, positions + samples);
  const auto lists = std::lower_bound(places.begin(), places.end(), context.batch_size);  // positions ascend
  std::for_each(lists, places.end(), [&](std::uint32_t& place) { place = context.chunks[place - context.batch_size]; });
  message.column(13, places.data(), samples);
  encoder.ids(message, plan.unique_ids, 14, 15);
  message.column(16, encoder.u32(plan.unique_slots), plan.unique_slots.size);
  message.column(17, encoder.i64(plan.unique_versions), plan.unique_versions.size);
  encoder.sets(message, 18, plan.unique_contributors);
  message.column(19, encoder.u32(plan.inverse), plan.inverse.size);
  message.picked(20, context.dense, context.dense_features, positions, samples);
  message.picked(21, context.labels, context.labels_per_sample, positions, samples);
  message.column(22, encoder.u64(plans.forgotten), plans.forgotten.size);
  message.number(23, static_cast<std::uint64_t>(plans.forgotten_below));
  message.message(24, encoder.rows(plan.discards, kNotTrained));
  message.number(25, context.labels_per_sample == 1 ? 0 : context.labels_per_sample);
  if (context.lengths != nullptr) {
    std::vector<std::uint32_t> lengths;
    lengths.reserve(samples * plans.fields);
    for (std::size_t i = 0; i < samples; ++i) {
      const std::uint32_t* of_sample = context.lengths + positions[i] * plans.fields;
      lengths.insert(lengths.end(), of_sample, of_sample + plans.fields);
    }
    message.column(26, lengths.data(), lengths.size());
  }
  message.picked(27, context.weights, 1, positions, samples);
  message.picked(28, context.groups, 1, positions, samples);
  message.column(29, encoder.u32(plan.reduced), plan.reduced.size);
  message.column(30, encoder.u32(plan.direct_pushes.places), plan.direct_pushes.places.size);
  message.column(31, encoder.u32(plan.direct_pushes.peers), plan.direct_pushes.peers.size);
  message.column(32, encoder.u32(plan.direct_pulls.places), plan.direct_pulls.places.size);
  message.column(33, encoder.u32(plan.direct_pulls.peers), plan.direct_pulls.peers.size);
  encoder.ids(message, plan.initial_ids, 34, 35);
  message.number(36, static_cast<std::uint64_t>(places.end() - lists));
  message.picked(38, context.references, 1, positions, samples);
  message.number(39, context.roles == nullptr ? 0 : context.roles[worker]);
  Message response;
  response.message(4, message);  // AttendResponse.plans
  return response.take();
}

}  // namespace esd::wire
