// The tables in esd.native.rows: rows in memory, their pre-images, and sets of ids and
// of changed ones; each call takes a whole block.
#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/arrays.h"
#include "rows/changed_rows.h"
#include "rows/id_set.h"
#include "rows/pre_images.h"
#include "rows/row_table.h"
#include "rows/tables_module.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace esd::rows {
namespace {

void require_rows(const RowTable& table, const In1<std::uint64_t>& ids, const In1<std::int64_t>& versions,
                  const In2<float>& rows) {
  require(versions.size() == ids.size() && rows.shape(0) == ids.size(), "ids, versions and rows differ in length");
  require(rows.shape(1) == table.width(), "rows do not have the table's width");
}

void require_pre_images(const RowTable& table, const PreImages* pre_images) {
  require(!pre_images || pre_images->width() == table.width(), "pre-images do not have the table's width");
}

nb::object versions(const RowTable& table, In1<std::uint64_t> ids) {
  const std::size_t n = ids.size();
  const Buffer<std::int64_t> versions(n);
  {
    const nb::gil_scoped_release release;
    table.versions(ids.data(), n, versions.data);
  }
  return versions.array(n);
}

nb::tuple read(const RowTable& table, In1<std::uint64_t> ids) {
  const std::size_t n = ids.size();
  const Buffer<std::int64_t> versions(n);
  const Buffer<float> rows(n * table.width());
  {
    const nb::gil_scoped_release release;
    table.read(ids.data(), n, versions.data, rows.data);
  }
  return nb::make_tuple(versions.array(n), rows.array(n, table.width()));
}

nb::object write_newer(RowTable& table, In1<std::uint64_t> ids, In1<std::int64_t> versions, In2<float> rows,
                       PreImages* pre_images) {
  require_rows(table, ids, versions, rows);
  require_pre_images(table, pre_images);
  const std::size_t n = ids.size();
  const Buffer<bool> stored(n);
  {
    const nb::gil_scoped_release release;
    for (std::size_t i = 0; i < n; ++i) {
      stored.data[i] =
          table.write_newer(ids.data()[i], versions.data()[i], rows.data() + i * table.width(), pre_images);
    }
  }
  return stored.array(n);
}

void overwrite(RowTable& table, In1<std::uint64_t> ids, In1<std::int64_t> versions, In2<float> rows) {
  require_rows(table, ids, versions, rows);
  const nb::gil_scoped_release release;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    table.overwrite(ids.data()[i], versions.data()[i], rows.data() + i * table.width());
  }
}

std::size_t forget_older(RowTable& table, In1<std::uint64_t> ids, std::int64_t below, PreImages* pre_images) {
  require_pre_images(table, pre_images);
  const nb::gil_scoped_release release;
  std::size_t count = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) count += table.forget_older(ids.data()[i], below, pre_images) ? 1 : 0;
  return count;
}

template <typename Rows>
nb::tuple scan(const Rows& table, std::uint64_t cursor, std::size_t limit) {
  const Buffer<std::uint64_t> ids(limit);
  const Buffer<std::int64_t> versions(limit);
  const Buffer<float> rows(limit * table.width());
  std::size_t n = 0;
  {
    const nb::gil_scoped_release release;
    n = table.scan(cursor, limit, ids.data, versions.data, rows.data);
  }
  return nb::make_tuple(cursor, ids.array(n), versions.array(n), rows.array(n, table.width()));
}

nb::object kept(const PreImages& pre_images, In1<std::uint64_t> ids) {
  const std::size_t n = ids.size();
  const Buffer<bool> kept(n);
  {
    const nb::gil_scoped_release release;
    for (std::size_t i = 0; i < n; ++i) kept.data[i] = pre_images.has(ids.data()[i]);
  }
  return kept.array(n);
}

void overlay(const PreImages& pre_images, In1<std::uint64_t> ids, InOut1<std::int64_t> versions, InOut2<float> rows) {
  const std::size_t n = ids.size();
  require(versions.size() == n && rows.shape(0) == n, "ids, versions and rows differ in length");
  require(rows.shape(1) == pre_images.width(), "rows do not have the table's width");
  const nb::gil_scoped_release release;
  for (std::size_t i = 0; i < n; ++i) {
    pre_images.overlay(ids.data()[i], versions.data()[i], rows.data() + i * pre_images.width());
  }
}

nb::object add(IdSet& set, In1<std::uint64_t> ids) {
  const std::size_t n = ids.size();
  const Buffer<bool> is_new(n);
  {
    const nb::gil_scoped_release release;
    for (std::size_t i = 0; i < n; ++i) is_new.data[i] = set.add(ids.data()[i]);
  }
  return is_new.array(n);
}

void add_changed(ChangedRows& changed, In1<std::uint64_t> ids) {
  const nb::gil_scoped_release release;
  for (std::size_t i = 0; i < ids.size(); ++i) changed.add(ids.data()[i]);
}

nb::object read_changed(ChangedRows& changed, std::uint64_t after) {
  std::optional<ChangedRows::Read> read;
  {
    const nb::gil_scoped_release release;
    read = changed.read(after);
  }
  if (!read) return nb::none();
  const Buffer<std::uint64_t> ids(read->ids.size());
  std::copy(read->ids.begin(), read->ids.end(), ids.data);
  return nb::make_tuple(read->last, read->seconds, ids.array(read->ids.size()));
}

}  // namespace

void bind_tables(nb::module_& m) {
  nb::class_<IdSet>(m, "IdSet")
      .def(nb::init<>())
      .def("add", &add, "ids"_a)
      .def("__len__", &IdSet::size)
      .def_prop_ro("memory_bytes", &IdSet::memory_bytes);

  nb::class_<ChangedRows>(m, "ChangedRows")
      .def(nb::init<std::size_t>(), "limit"_a)
      .def("add", &add_changed, "ids"_a)
      .def("begin", &ChangedRows::begin, nb::call_guard<nb::gil_scoped_release>())
      .def("read", &read_changed, "after"_a)
      .def("lose", &ChangedRows::lose)
      .def_prop_ro("memory_bytes", &ChangedRows::memory_bytes);

  nb::class_<PreImages>(m, "PreImages")
      .def(nb::init<std::size_t>(), "width"_a)
      .def("kept", &kept, "ids"_a)
      .def("overlay", &overlay, "ids"_a, "versions"_a.noconvert(), "rows"_a.noconvert())
      .def("scan", &scan<PreImages>, "cursor"_a, "limit"_a)
      .def("__len__", &PreImages::size)
      .def_prop_ro("memory_bytes", &PreImages::memory_bytes);

  nb::class_<RowTable>(m, "RowTable")
      .def(nb::init<std::size_t>(), "width"_a)
      .def("versions", &versions, "ids"_a)
      .def("read", &read, "ids"_a)
      .def("write_newer", &write_newer, "ids"_a, "versions"_a, "rows"_a, "pre_images"_a = nb::none())
      .def("overwrite", &overwrite, "ids"_a, "versions"_a, "rows"_a)
      .def("forget_older", &forget_older, "ids"_a, "below"_a, "pre_images"_a = nb::none())
      .def("scan", &scan<RowTable>, "cursor"_a, "limit"_a)
      .def("__len__", &RowTable::size)
      .def_prop_ro("width", &RowTable::width)
      .def_prop_ro("trainings", &RowTable::trainings)
      .def_prop_ro("memory_bytes", &RowTable::memory_bytes);
}

}  // namespace esd::rows
