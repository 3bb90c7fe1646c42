// The Python module esd.native.text, whose interface is documented in esd/native/text.pyi.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "common/arrays.h"
#include "common/to_numpy.h"
#include "text/distinct_ids.h"
#include "text/hash.h"
#include "text/id_sample.h"
#include "text/parser.h"
#include "text/whole_records.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace esd::text {
namespace {

Kind kind_of(const std::string& name) {
  if (name == "skip") return Kind::kSkip;
  if (name == "id") return Kind::kId;
  if (name == "integer") return Kind::kInteger;
  if (name == "decimal") return Kind::kDecimal;
  if (name == "flag") return Kind::kFlag;
  throw std::invalid_argument("column kind is '" + name + "', it must be skip, id, integer, decimal or flag");
}

Parser make_parser(const std::vector<std::tuple<std::string, bool, std::uint64_t>>& columns, std::string delimiter,
                   bool quoted, std::string missing, std::size_t max_line_bytes) {
  if (delimiter.empty() || delimiter.size() > 2) {
    throw std::invalid_argument("delimiter is '" + delimiter + "', it must be one or two bytes");
  }
  Format format{{}, std::move(delimiter), quoted, std::move(missing), max_line_bytes};
  for (const auto& [kind, optional, field_key] : columns) {
    format.columns.push_back({kind_of(kind), optional, field_key});
  }
  return Parser(std::move(format));
}

nb::tuple parse(const Parser& parser, const nb::bytes& text, std::size_t bad_allowed) {
  const std::string_view view(text.c_str(), text.size());
  Block block;
  {
    nb::gil_scoped_release release;
    block = parser.parse(view, bad_allowed);
  }
  nb::list mistakes;
  for (const Mistake& m : block.mistakes) {
    const nb::object found = m.at_end ? nb::none() : nb::object(nb::bytes(m.found.data(), m.found.size()));
    mistakes.append(nb::make_tuple(m.line, m.column, m.expected, found));
  }
  return nb::make_tuple(to_numpy(std::move(block.ids), block.records, parser.id_columns()),
                        to_numpy(std::move(block.numbers), block.records, parser.number_columns()), block.lines,
                        mistakes);
}

std::size_t records_end(const nb::bytes& text, const std::string& delimiter) {
  if (delimiter.size() != 1) throw std::invalid_argument("delimiter is '" + delimiter + "', it must be one byte");
  const std::string_view view(text.c_str(), text.size());
  nb::gil_scoped_release release;
  return whole_records(view, delimiter[0]);
}

void add(DistinctIds& distinct, const In1<std::uint64_t>& ids) {
  nb::gil_scoped_release release;
  distinct.add(ids.data(), ids.size());
}

void sample(IdSample& sample, const In1<std::uint64_t>& ids, std::uint64_t iteration) {
  nb::gil_scoped_release release;
  sample.add(ids.data(), ids.size(), iteration);
}

auto sampled(const IdSample& sample, const In1<std::uint64_t>& since) {
  if (since.size() != sample.tables()) throw std::invalid_argument("there must be an iteration for each table");
  std::vector<std::uint64_t> counts(sample.tables());
  for (std::size_t table = 0; table < counts.size(); ++table) counts[table] = sample.count(table, since.data()[table]);
  return to_numpy(std::move(counts));
}

auto shares(const IdSample& sample) {
  std::vector<double> shares(sample.tables());
  for (std::size_t table = 0; table < shares.size(); ++table) shares[table] = std::ldexp(1.0, -sample.level(table));
  return to_numpy(std::move(shares));
}

// Python writes `True` and Arrow `true`: one truth value has one id.
std::uint64_t hash_value(std::uint64_t field_key, const char* text, std::size_t length) {
  if (length == 4 && std::memcmp(text, "True", 4) == 0) return hash_text(field_key, "true", 4);
  if (length == 5 && std::memcmp(text, "False", 5) == 0) return hash_text(field_key, "false", 5);
  return hash_text(field_key, text, length);
}

// Text i is text[offsets[i] .. offsets[i + 1]).
template <typename Offset>
auto hash_texts(std::uint64_t field_key, const In1<Offset>& offsets, const In1<std::uint8_t>& text) {
  if (offsets.size() == 0) throw std::invalid_argument("offsets are empty: n texts have n + 1 offsets");
  std::vector<std::uint64_t> ids(offsets.size() - 1);
  bool inside = true;
  {
    nb::gil_scoped_release release;
    const Offset* at = offsets.data();
    const char* bytes = reinterpret_cast<const char*>(text.data());
    inside = at[0] >= 0;
    for (std::size_t i = 0; i < ids.size() && inside; ++i) {
      inside = at[i] <= at[i + 1] && static_cast<std::size_t>(at[i + 1]) <= text.size();
      if (inside) ids[i] = hash_value(field_key, bytes + at[i], static_cast<std::size_t>(at[i + 1] - at[i]));
    }
  }
  if (!inside) throw std::invalid_argument("offsets must ascend and lie within the text");
  return to_numpy(std::move(ids));
}

// The id of a number is the id of its decimal digits, so that it equals the same value in a text file.
template <typename Integer>
auto hash_integers(std::uint64_t field_key, const In1<Integer>& values) {
  std::vector<std::uint64_t> ids(values.size());
  {
    nb::gil_scoped_release release;
    char digits[24];
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const char* end = std::to_chars(digits, digits + sizeof digits, values.data()[i]).ptr;
      ids[i] = hash_text(field_key, digits, static_cast<std::size_t>(end - digits));
    }
  }
  return to_numpy(std::move(ids));
}

}  // namespace
}  // namespace esd::text

NB_MODULE(text, module) {
  using namespace esd::text;
  nb::class_<Parser>(module, "Parser")
      .def(nb::new_(&make_parser), "columns"_a, "delimiter"_a, nb::kw_only(), "quoted"_a, "missing"_a,
           "max_line_bytes"_a)
      .def("parse", &parse, "text"_a, "bad_allowed"_a);
  module.def("hash_texts", &hash_texts<std::int32_t>, "field_key"_a, "offsets"_a.noconvert(), "text"_a);
  module.def("hash_texts", &hash_texts<std::int64_t>, "field_key"_a, "offsets"_a.noconvert(), "text"_a);
  module.def("hash_integers", &hash_integers<std::int64_t>, "field_key"_a, "values"_a.noconvert());
  module.def("hash_integers", &hash_integers<std::uint64_t>, "field_key"_a, "values"_a.noconvert());
  module.def("whole_records", &records_end, "text"_a, "delimiter"_a);
  nb::class_<DistinctIds>(module, "DistinctIds")
      .def(nb::init<>())
      .def("add", &add, "ids"_a)
      .def("__len__", &DistinctIds::size);
  nb::class_<IdSample>(module, "IdSample")
      .def(nb::init<std::size_t>(), "tables"_a)
      .def("add", &sample, "ids"_a, "iteration"_a)
      .def("counts", &sampled, "since"_a)
      .def_prop_ro("shares", &shares, nb::rv_policy::move);
}
