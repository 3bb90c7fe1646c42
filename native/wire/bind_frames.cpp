// The part of esd.native.wire that is about a client's end of the exchange with a parameter server, or with another
// worker: frames are written, and answers are read.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "common/arrays.h"
#include "wire/answer_reader.h"
#include "wire/frame_writer.h"
#include "wire/module.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace esd::wire {
namespace {

using Slots = std::optional<In1<std::uint32_t>>;

GatheredFloats gathered(const In2<float>& table, const Slots& slots, std::size_t n, std::size_t width) {
  require(width <= table.shape(1), "a row of the frame is wider than a row of its table");
  if (!slots) {
    require(table.shape(0) == n, "ids and rows differ in length");
    return {table.data(), table.shape(1), width, nullptr};
  }
  require(slots->size() == n, "ids and slots differ in length");
  const std::uint32_t* const end = slots->data() + n;
  require(n == 0 || *std::max_element(slots->data(), end) < table.shape(0), "a slot is not in the table");
  return {table.data(), table.shape(1), width, slots->data()};
}

nb::tuple write_frame(std::uint64_t sequence, std::string_view table, std::uint64_t epoch, std::uint32_t wait_ms,
                      std::uint64_t iteration, In1<std::uint64_t> row_ids, In1<std::int64_t> row_versions,
                      In2<float> rows, Slots row_slots, In1<std::uint64_t> gradient_ids, In1<std::int64_t> targets,
                      const InSets& contributors, In1<std::uint32_t> steps, In1<float> rates, In2<float> gradients,
                      Slots gradient_slots, std::size_t dimension, unsigned worker, In1<std::uint64_t> pull_ids,
                      In1<std::int64_t> pull_versions, std::size_t stateless, std::string_view trace_parent) {
  const std::size_t n = gradient_ids.size();
  require(row_versions.size() == row_ids.size(), "row_ids and row_versions differ in length");
  const WorkerSets sets = sets_of(contributors);
  require(targets.size() == n && sets.size == n && steps.size() == n && rates.size() == n,
          "gradient_ids, targets, contributors, steps and rates differ in length");
  require(pull_versions.size() == pull_ids.size(), "pull_ids and pull_versions differ in length");
  require(stateless <= pull_ids.size(), "more rows are pulled without their state than there are");
  const FrameWriter frame{
      sequence,
      table,
      epoch,
      wait_ms,
      iteration,
      {row_ids.size(), row_ids.data(), row_versions.data(), gathered(rows, row_slots, row_ids.size(), rows.shape(1))},
      {n, gradient_ids.data(), targets.data(), sets, steps.data(), rates.data(),
       gathered(gradients, gradient_slots, n, dimension), worker},
      {pull_ids.size(), pull_ids.data(), pull_versions.data(), stateless},
      trace_parent,
  };
  const std::size_t pushes_at = frame.head_size(), pulls_at = pushes_at + frame.push_size();
  const nb::object message =
      nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(pulls_at + frame.pull_size())));
  if (!message.is_valid()) throw std::bad_alloc();
  auto* const data = reinterpret_cast<std::uint8_t*>(PyBytes_AsString(message.ptr()));
  {
    const nb::gil_scoped_release release;
    frame.write(data);
  }
  return nb::make_tuple(message, pushes_at, pulls_at);
}

const std::uint8_t* data_of(const nb::bytes& message) { return static_cast<const std::uint8_t*>(message.data()); }

}  // namespace

void bind_frames(nb::module_& m) {
  m.def("write_frame", &write_frame, "sequence"_a, "table"_a, "epoch"_a, "wait_ms"_a, "iteration"_a,
        "row_ids"_a.noconvert(), "row_versions"_a.noconvert(), "rows"_a.noconvert(), "row_slots"_a.noconvert().none(),
        "gradient_ids"_a.noconvert(), "targets"_a.noconvert(), "contributors"_a.noconvert(), "steps"_a.noconvert(),
        "rates"_a.noconvert(), "gradients"_a.noconvert(), "gradient_slots"_a.noconvert().none(), "dimension"_a,
        "worker"_a, "pull_ids"_a.noconvert(), "pull_versions"_a.noconvert(), "stateless"_a, "trace_parent"_a);

  nb::class_<AnswerParts>(m, "AnswerParts")
      .def(
          "__init__",
          [](AnswerParts* self, const nb::bytes& message) {
            new (self) AnswerParts(AnswerParts::read(data_of(message), message.size()));
          },
          "message"_a)
      .def_ro("sequence", &AnswerParts::sequence)
      .def_ro("stored", &AnswerParts::stored)
      .def_ro("newly_stored", &AnswerParts::newly_stored)
      .def_ro("already_known", &AnswerParts::already_known)
      .def_ro("refused", &AnswerParts::refused)
      .def_ro("done", &AnswerParts::done)
      .def_ro("credit", &AnswerParts::credit)
      .def_prop_ro("brings_rows", &AnswerParts::brings_rows)
      .def(
          "scatter",
          [](const AnswerParts& answer, const nb::bytes& message, InOut2<float> rows, In1<std::uint64_t> ids,
             In1<std::int64_t> places, InOut1<bool> arrived, std::size_t stateless, std::size_t dimension,
             std::uint64_t seed, double scale, std::size_t cursor) {
            const std::size_t n = places.size();
            require(ids.size() == n && arrived.size() == n, "ids, places and arrived differ in length");
            require(stateless <= n && dimension >= 1 && dimension <= rows.shape(1),
                    "stateless rows are more than all, or their dimension is not within the width");
            for (const Part part : {answer.rows, answer.positions, answer.initial}) {
              require(part.offset + part.size <= message.size(), "the answer was read from another message");
            }
            for (std::size_t i = 0; i < n; ++i) {
              require(places.data()[i] >= 0 && static_cast<std::size_t>(places.data()[i]) < rows.shape(0),
                      "a place is not in rows");
            }
            const InitialRows made{seed, scale, dimension, rows.shape(1)};
            AnsweredRows answered{rows.data(), made, ids.data(), places.data(), arrived.data(), n, stateless, cursor};
            std::size_t count;
            {
              const nb::gil_scoped_release release;
              count = answered.scatter(data_of(message), answer);
            }
            return nb::make_tuple(count, answered.initial, answered.cursor, answered.bytes_asked);
          },
          "message"_a, "rows"_a.noconvert(), "ids"_a.noconvert(), "places"_a.noconvert(), "arrived"_a.noconvert(),
          "stateless"_a, "dimension"_a, "seed"_a, "scale"_a, "cursor"_a);
}

}  // namespace esd::wire
