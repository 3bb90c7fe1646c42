// Conversions between blocks of rows and the records of the Redis store, for whole blocks.
#include "rows/records.h"

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "common/arrays.h"
#include "common/to_numpy.h"
#include "rows/field_filter.h"
#include "rows/records_module.h"
#include "rows/redis_commands.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace esd::rows {
namespace {

// The bytes of a Python string, which outlive the list that holds it; no bytes for None.
struct Text {
  const unsigned char* data = nullptr;
  std::size_t size = 0;
};

std::vector<Text> texts_of(const nb::list& list) {
  std::vector<Text> texts(list.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const nb::handle value = list[i];
    if (value.is_none()) continue;
    const auto text = nb::cast<nb::bytes>(value);
    texts[i] = {static_cast<const unsigned char*>(text.data()), text.size()};
  }
  return texts;
}

nb::tuple addresses(In1<std::uint64_t> ids) {
  const std::size_t n = ids.size();
  const Buffer<std::uint16_t> places(n);
  const Buffer<std::uint8_t> names(n * kNameBytes);
  for (std::size_t i = 0; i < n; ++i) {
    const Address address = Address::of(ids.data()[i]);
    places.data[i] = address.place();
    address.copy_name(names.data + i * kNameBytes);
  }
  return nb::make_tuple(places.array(n), names.array(n, kNameBytes));
}

nb::object add(FieldFilter& filter, In1<std::uint64_t> ids) {
  const std::size_t n = ids.size();
  const Buffer<bool> is_new(n);
  filter.add(ids.data(), n, is_new.data);
  return is_new.array(n);
}

nb::object has(const FieldFilter& filter, In1<std::uint64_t> ids) {
  const std::size_t n = ids.size();
  const Buffer<bool> is_there(n);
  filter.has(ids.data(), n, is_there.data);
  return is_there.array(n);
}

nb::object ids_at(std::size_t place, const nb::list& names) {
  const std::vector<Text> texts = texts_of(names);
  const Buffer<std::uint64_t> ids(texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) {
    require(texts[i].size == kNameBytes, "a name has another length than 7 bytes");
    ids.data[i] = Address::at(place, texts[i].data).id();
  }
  return ids.array(texts.size());
}

nb::tuple encode_records(In1<std::uint64_t> ids, In1<std::int64_t> versions, In2<float> rows) {
  const std::size_t n = ids.size();
  const std::size_t width = rows.shape(1);
  require(versions.size() == n && rows.shape(0) == n, "ids, versions and rows differ in length");
  const Buffer<std::uint8_t> records(n * Record::most_bytes(width));
  const Buffer<std::int64_t> starts(n + 1);
  std::size_t at = 0;
  {
    const nb::gil_scoped_release release;
    for (std::size_t i = 0; i < n; ++i) {
      starts.data[i] = static_cast<std::int64_t>(at);
      at += Record::write(records.data + at, ids.data()[i], versions.data()[i], rows.data() + i * width, width);
    }
    starts.data[n] = static_cast<std::int64_t>(at);
  }
  return nb::make_tuple(records.array(at), starts.array(n + 1));
}

// A command HSET for each key: with the next fields, and the values between the next starts.
nb::bytes hset_commands(const nb::list& keys, In1<std::uint16_t> counts, In2<std::uint8_t> fields,
                        In1<std::uint8_t> values, In1<std::int64_t> starts) {
  constexpr std::size_t kFrame = RedisCommands::kFrame;
  const std::vector<Text> hashes = texts_of(keys);
  const std::size_t n = fields.shape(0);
  const std::size_t field_bytes = fields.shape(1);
  require(counts.size() == hashes.size() && starts.size() == n + 1, "keys, fields and values differ in number");
  std::size_t most = values.size() + n * (field_bytes + 2 * kFrame);
  for (const Text& key : hashes) most += key.size + 3 * kFrame;
  RedisCommands commands(most);
  std::size_t at = 0;
  for (std::size_t k = 0; k < hashes.size(); ++k) {
    const std::size_t end = at + counts.data()[k];
    require(end <= n, "there are fewer fields than the counts say");
    commands.begin(2 + 2 * (end - at));
    commands.word("HSET", 4);
    commands.word(hashes[k].data, hashes[k].size);
    for (; at < end; ++at) {
      const std::int64_t start = starts.data()[at];
      commands.word(fields.data() + at * field_bytes, field_bytes);
      commands.word(values.data() + start, static_cast<std::size_t>(starts.data()[at + 1] - start));
    }
  }
  return nb::bytes(commands.packed().data(), commands.packed().size());
}

// What a search for the record of a row in its field finds.
enum class Found : std::uint8_t { kRow, kNothing, kDamage };

// If the field has records of other rows only, they must be whole: the record of this row could be damaged where it
// has the last byte of the address.
Found read_row(const Text& field, std::uint64_t id, std::size_t width, std::int64_t& version, float* row) {
  const Address address = Address::of(id);
  bool whole = true;
  for (std::size_t at = 0; at < field.size;) {
    const Record record(field.data + at, field.size - at, width);
    if (!record.whole()) return Found::kDamage;
    if (record.last() == address.last()) return record.read(id, version, row) ? Found::kRow : Found::kDamage;
    whole = record.read(address.beside(record.last()).id(), version, row) && whole;
    at += record.size();
  }
  return whole ? Found::kNothing : Found::kDamage;
}

nb::tuple decode_records(In1<std::uint64_t> ids, const nb::list& values, std::size_t width) {
  const std::size_t n = ids.size();
  const std::vector<Text> fields = texts_of(values);
  require(fields.size() == n, "ids and values differ in length");
  const Buffer<std::int64_t> versions(n);
  const Buffer<float> rows(n * width);
  std::vector<std::uint64_t> damaged;
  {
    const nb::gil_scoped_release release;
    for (std::size_t i = 0; i < n; ++i) {
      float* row = rows.data + i * width;
      const Found found = read_row(fields[i], ids.data()[i], width, versions.data[i], row);
      if (found == Found::kDamage) damaged.push_back(ids.data()[i]);
      if (found != Found::kRow) {
        versions.data[i] = 0;
        std::fill_n(row, width, 0.0F);
      }
    }
  }
  return nb::make_tuple(versions.array(n), rows.array(n, width), to_numpy(std::move(damaged)));
}

nb::tuple split_records(std::size_t place, const nb::list& names, const nb::list& values, std::size_t width) {
  const std::vector<Text> fields = texts_of(names);
  const std::vector<Text> texts = texts_of(values);
  require(fields.size() == texts.size(), "fields and values differ in length");
  std::vector<std::uint64_t> ids;
  std::vector<std::int64_t> versions;
  std::vector<float> rows;
  std::vector<std::uint64_t> damaged;
  {
    const nb::gil_scoped_release release;
    rows.reserve(texts.size() * width);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      require(fields[i].size == kFieldBytes, "a field has another length than 6 bytes");
      unsigned char name[kNameBytes];
      std::memcpy(name, fields[i].data, kFieldBytes);
      bool whole = true;
      for (std::size_t at = 0; whole && at < texts[i].size;) {
        const Record record(texts[i].data + at, texts[i].size - at, width);
        name[kFieldBytes] = record.last();
        ids.push_back(Address::at(place, name).id());
        versions.push_back(0);
        rows.resize(rows.size() + width);
        whole = record.whole();
        if (!whole || !record.read(ids.back(), versions.back(), rows.data() + rows.size() - width)) {
          damaged.push_back(ids.back());
        }
        at += record.size();
      }
    }
  }
  const std::size_t n = ids.size();
  return nb::make_tuple(to_numpy(std::move(ids)), to_numpy(std::move(versions)), to_numpy(std::move(rows), n, width),
                        to_numpy(std::move(damaged)));
}

}  // namespace

void bind_records(nb::module_& m) {
  m.def("addresses", &addresses, "ids"_a);
  m.def("ids_at", &ids_at, "place"_a, "names"_a);
  m.def("encode_records", &encode_records, "ids"_a, "versions"_a, "rows"_a);
  m.def("hset_commands", &hset_commands, "keys"_a, "counts"_a, "fields"_a, "values"_a, "starts"_a);
  m.def("decode_records", &decode_records, "ids"_a, "values"_a, "width"_a);
  m.def("split_records", &split_records, "place"_a, "fields"_a, "values"_a, "width"_a);

  nb::class_<FieldFilter>(m, "FieldFilter")
      .def(nb::init<>())
      .def("add", &add, "ids"_a)
      .def("has", &has, "ids"_a)
      .def_prop_ro("memory_bytes", &FieldFilter::memory_bytes);
}

}  // namespace esd::rows
