// The exchange in esd.native.rows: a frame applied to a table in one call, and its answers.
#include "rows/exchange.h"
#include "common/arrays.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "rows/changed_rows.h"
#include "rows/exact_pulls.h"
#include "rows/frame_push.h"
#include "rows/partial_gradients.h"
#include "rows/pre_images.h"
#include "rows/row_table.h"
#include "rows/waiting_rows.h"
#include "wire/answer_writer.h"
#include "wire/frame_reader.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace esd::rows {
namespace {

using StoredCounts = std::optional<std::tuple<std::uint64_t, std::uint64_t>>;  // new, already known

// A frame, and the message in which its columns lie.
struct HeldFrame {
  nb::bytes message;
  wire::FrameView frame;

  explicit HeldFrame(nb::bytes data)
      : message(std::move(data)),
        frame(wire::FrameView::read({static_cast<const std::uint8_t*>(message.data()), message.size()})) {}
};

// A bytes object that is written before Python code sees it, and cut to the written size.
class PyBytes {
 public:
  explicit PyBytes(std::size_t longest) : object_(PyBytes_FromStringAndSize(nullptr, longest)) {
    if (!object_) throw nb::python_error();
  }
  PyBytes(const PyBytes&) = delete;
  PyBytes& operator=(const PyBytes&) = delete;
  ~PyBytes() { Py_XDECREF(object_); }

  std::uint8_t* data() const { return reinterpret_cast<std::uint8_t*>(PyBytes_AsString(object_)); }

  // None if it is empty.
  nb::object take(std::size_t size) {
    if (size == 0) return nb::none();
#ifdef Py_LIMITED_API  // which cannot cut: a wheel for all versions of Python copies once more
    return nb::bytes(data(), size);
#else
    if (_PyBytes_Resize(&object_, static_cast<Py_ssize_t>(size)) != 0) throw nb::python_error();
    return nb::steal(std::exchange(object_, nullptr));
#endif
  }

 private:
  PyObject* object_;
};

// The result of a frame.
struct Applied {
  bool good = false;
  wire::Stored stored;
  Woken woken;
  nb::object pulls;   // ExactPulls, or None if all are answered
  nb::object answer;  // bytes, or None if it would be empty

  StoredCounts counts() const {
    if (!stored.any) return std::nullopt;
    return std::tuple(stored.newly_stored, stored.already_known);
  }
};

std::unique_ptr<ExactPulls> pulls_of(const wire::FrameView::Pulls& pulls, const TableFacts& facts) {
  auto ids = pulls.ids.column<std::uint64_t>();
  auto wanted = pulls.versions.column<std::int64_t>();
  const bool good = are_numbers(pulls.ids, ids.size()) && are_numbers(pulls.versions, ids.size()) &&
                    pulls.stateless <= ids.size() && distinct(ids) && versions_between(wanted, 0) &&
                    facts.shard.has(ids);
  return good ? std::make_unique<ExactPulls>(std::move(ids), std::move(wanted), pulls.stateless) : nullptr;
}

PulledBytes pulled_bytes(const TableFacts& facts) {
  return {facts.initial.width * sizeof(float), facts.initial.dimension * sizeof(float)};
}

// Applies a frame; returns false for an invalid frame. `message` has room for the longest answer.
bool do_frame(const TableFacts& facts, const TableParts& parts, const wire::FrameView& frame, std::size_t limit,
              Applied& applied, std::unique_ptr<ExactPulls>& pulls, std::uint8_t* message, std::size_t& size) {
  if (!frame.rows.present && !frame.gradients.present && !frame.pulls.present) return false;
  const RowPush rows(frame.rows, facts);
  const GradientPush gradients(frame.gradients, facts);
  if (!rows.good() || !gradients.good()) return false;
  if (frame.pulls.present && !(pulls = pulls_of(frame.pulls, facts))) return false;
  applied.stored.any = frame.rows.present || frame.gradients.present;
  if (frame.rows.present && !rows.store(parts, applied.stored, applied.woken)) return false;
  if (frame.gradients.present && !gradients.store(parts, applied.stored, applied.woken)) return false;
  if (pulls) {
    size = pulls->answer(frame.sequence, applied.stored, limit, pulled_bytes(facts), ExactReader(parts.rows), message);
  } else {
    wire::AnswerWriter writer(message, frame.sequence, applied.stored);
    writer.done();
    size = writer.size();
  }
  return true;
}

Applied apply(const TableFacts& facts, const HeldFrame& held, RowTable& rows, PartialGradients& partials,
              PreImages* pre_images, WaitingRows& waiting, std::size_t limit, ChangedRows* changed) {
  require(rows.width() == facts.initial.width && partials.dimension() == facts.initial.dimension &&
              (!pre_images || pre_images->width() == rows.width()),
          "the table has another width");
  const std::size_t pulled = std::min(limit, held.frame.pulls.ids.size / sizeof(std::uint64_t));
  const std::size_t row_bytes = facts.initial.width * sizeof(float);
  PyBytes message(wire::AnswerWriter::kBesideRows + pulled * (row_bytes + wire::AnswerWriter::kBesideRow));
  Applied applied;
  std::unique_ptr<ExactPulls> pulls;
  std::size_t size = 0;
  {
    const nb::gil_scoped_release release;
    const TableParts parts{rows, partials, pre_images, waiting, changed};
    applied.good = do_frame(facts, parts, held.frame, limit, applied, pulls, message.data(), size);
  }
  applied.answer = message.take(size);
  applied.pulls = applied.good && pulls && !pulls->done() ? nb::cast(std::move(*pulls)) : nb::none();
  return applied;
}

nb::object answer_from_table(const TableFacts& facts, ExactPulls& pulls, std::uint64_t sequence, const RowTable& rows,
                             std::size_t limit, bool storing) {
  require(rows.width() == facts.initial.width, "the table has another width");
  const PulledBytes bytes = pulled_bytes(facts);
  PyBytes message(pulls.longest_answer(limit, bytes));
  std::size_t size = 0;
  {
    const nb::gil_scoped_release release;
    size = pulls.answer(sequence, {}, limit, bytes, ExactReader(rows), message.data(), storing);
  }
  return message.take(size);
}

nb::object answer_from_rows(ExactPulls& pulls, std::uint64_t sequence, In1<std::int64_t> versions, In2<float> rows,
                            In1<bool> initial, std::size_t dimension, bool storing) {
  const std::size_t n = versions.size();
  require(n == rows.shape(0) && n == initial.size() && n <= pulls.due().size(),
          "versions, rows and initial do not belong to due pulls");
  require(dimension <= rows.shape(1), "a row has more values than floats");
  const PulledBytes bytes{rows.shape(1) * sizeof(float), dimension * sizeof(float)};
  PyBytes message(pulls.longest_answer(n, bytes));
  std::size_t size = 0;
  {
    const nb::gil_scoped_release release;
    std::size_t i = 0;
    const auto read = [&](std::uint64_t, std::int64_t wanted, std::uint8_t* out, std::size_t row_bytes) {
      const FoundRow row{versions.data()[i], initial.data()[i]};
      if (row.version == wanted && !row.initial && row_bytes > 0) {
        std::memcpy(out, rows.data() + i * rows.shape(1), row_bytes);
      }
      ++i;
      return row;
    };
    size = pulls.answer(sequence, {}, n, bytes, read, message.data(), storing);
  }
  return message.take(size);
}

// Ids and wanted versions of the first `limit` due pulls.
nb::tuple due_rows(const ExactPulls& pulls, std::size_t limit) {
  const std::size_t n = std::min(limit, pulls.due().size());
  const Buffer<std::uint64_t> ids(n);
  const Buffer<std::int64_t> wanted(n);
  for (std::size_t i = 0; i < n; ++i) {
    ids.data[i] = pulls.id(pulls.due()[i]);
    wanted.data[i] = pulls.wanted(pulls.due()[i]);
  }
  return nb::make_tuple(ids.array(n), wanted.array(n));
}

ExactPulls make_pulls(In1<std::uint64_t> ids, In1<std::int64_t> wanted, std::size_t stateless) {
  require(ids.size() == wanted.size(), "ids and wanted differ in length");
  require(stateless <= ids.size(), "more rows are wanted without their state than there are");
  return {{ids.data(), ids.data() + ids.size()}, {wanted.data(), wanted.data() + wanted.size()}, stateless};
}

std::optional<std::tuple<std::uint64_t, std::int64_t, std::int64_t>> stale_of(const ExactPulls& pulls) {
  const auto& stale = pulls.stale();
  if (!stale) return std::nullopt;
  return std::tuple(stale->id, stale->version, stale->wanted);
}

void expect_behind(WaitingRows& waiting, WaitingRows::Ticket ticket, const ExactPulls& pulls) {
  for (const std::uint32_t at : pulls.last_behind()) waiting.expect(ticket, pulls.id(at), pulls.wanted(at));
}

void end_read(WaitingRows& waiting, WaitingRows::Ticket ticket, const ExactPulls& pulls) {
  std::vector<std::pair<std::uint64_t, std::int64_t>> behind;
  behind.reserve(pulls.last_behind().size());
  for (const std::uint32_t at : pulls.last_behind()) behind.emplace_back(pulls.id(at), pulls.wanted(at));
  waiting.end_read(ticket, behind);
}

void expect_due(WaitingRows& waiting, WaitingRows::Ticket ticket, const ExactPulls& pulls, std::size_t limit) {
  const std::size_t n = std::min(limit, pulls.due().size());
  for (std::size_t i = 0; i < n; ++i) waiting.expect(ticket, pulls.id(pulls.due()[i]), pulls.wanted(pulls.due()[i]));
}

Woken announce(WaitingRows& waiting, In1<std::uint64_t> ids, In1<std::int64_t> versions) {
  require(ids.size() == versions.size(), "ids and versions differ in length");
  Woken woken;
  for (std::size_t i = 0; i < ids.size(); ++i) waiting.announce(ids.data()[i], versions.data()[i], woken);
  return woken;
}

TableFacts make_facts(std::size_t dimension, std::size_t width, std::uint64_t seed, double scale, unsigned optimizer,
                      double epsilon, double beta1, double beta2, double max_norm, std::uint64_t shard,
                      std::uint64_t shards) {
  require(optimizer < 3, "optimizer is 0, 1 or 2");
  const std::size_t states[] = {0, 1, 2 * dimension};
  require(width == dimension + states[optimizer], "the optimizer's rows have another width");
  require(shard < shards, "shard is not below shards");
  const auto kind = static_cast<Optimizer::Kind>(optimizer);
  return {{seed, scale, dimension, width}, {kind, epsilon, beta1, beta2, max_norm}, {shard, shards}};
}

}  // namespace

void bind_exchange(nb::module_& m) {
  nb::class_<HeldFrame>(m, "HeldFrame")
      .def(nb::init<nb::bytes>(), "message"_a)
      .def_prop_ro("sequence", [](const HeldFrame& held) { return held.frame.sequence; })
      .def_prop_ro("table",
                   [](const HeldFrame& held) { return nb::str(held.frame.table.data(), held.frame.table.size()); })
      .def_prop_ro("epoch", [](const HeldFrame& held) { return held.frame.epoch; })
      .def_prop_ro("wait_ms", [](const HeldFrame& held) { return held.frame.wait_ms; })
      .def_prop_ro(
          "trace_parent",
          [](const HeldFrame& held) { return nb::str(held.frame.trace_parent.data(), held.frame.trace_parent.size()); })
      .def_prop_ro("pushes",
                   [](const HeldFrame& held) { return held.frame.rows.present || held.frame.gradients.present; })
      .def_prop_ro("pulled_rows",
                   [](const HeldFrame& held) { return held.frame.pulls.ids.size / sizeof(std::uint64_t); });

  nb::class_<ExactPulls>(m, "ExactPulls")
      .def(
          "__init__",
          [](ExactPulls* self, In1<std::uint64_t> ids, In1<std::int64_t> wanted, std::size_t stateless) {
            new (self) ExactPulls(make_pulls(ids, wanted, stateless));
          },
          "ids"_a, "wanted"_a, "stateless"_a = 0)
      .def_prop_ro("due", [](const ExactPulls& pulls) { return pulls.due().size(); })
      .def_prop_ro("lagging", [](const ExactPulls& pulls) { return pulls.lagging().size(); })
      .def_prop_ro("done", &ExactPulls::done)
      .def_prop_ro("stale", &stale_of)
      .def("retry", &ExactPulls::retry)
      .def("due_rows", &due_rows, "limit"_a)
      .def("answer", &answer_from_rows, "sequence"_a, "versions"_a, "rows"_a, "initial"_a, "dimension"_a,
           "storing"_a = false);

  nb::class_<WaitingRows>(m, "WaitingRows")
      .def(nb::init<>())
      .def("expect_due", &expect_due, "ticket"_a, "pulls"_a, "limit"_a)
      .def("expect_behind", &expect_behind, "ticket"_a, "pulls"_a)
      .def("begin_read", &WaitingRows::begin_read, "ticket"_a)
      .def("end_read", &end_read, "ticket"_a, "pulls"_a)
      .def("announce", &announce, "ids"_a, "versions"_a)
      .def("missing", &WaitingRows::missing, "ticket"_a)
      .def(
          "first_missing",
          [](const WaitingRows& waiting, WaitingRows::Ticket ticket) {
            const auto [id, version] = waiting.first_missing(ticket);
            return std::tuple(id, version);
          },
          "ticket"_a)
      .def("forget", &WaitingRows::forget, "ticket"_a)
      .def_prop_ro("kept_announcements", &WaitingRows::kept_announcements)
      .def("__len__", &WaitingRows::size);

  nb::class_<Applied>(m, "Applied")
      .def_ro("good", &Applied::good)
      .def_prop_ro("stored", &Applied::counts)
      .def_ro("woken", &Applied::woken)
      .def_ro("pulls", &Applied::pulls)
      .def_ro("answer", &Applied::answer);

  nb::class_<TableFacts>(m, "FrameTable")
      .def(
          "__init__",
          [](TableFacts* self, std::size_t dimension, std::size_t width, std::uint64_t seed, double scale,
             unsigned optimizer, double epsilon, double beta1, double beta2, double max_norm, std::uint64_t shard,
             std::uint64_t shards) {
            new (self) TableFacts(
                make_facts(dimension, width, seed, scale, optimizer, epsilon, beta1, beta2, max_norm, shard, shards));
          },
          "dimension"_a, "width"_a, "seed"_a, "scale"_a, "optimizer"_a, "epsilon"_a, "beta1"_a, "beta2"_a, "max_norm"_a,
          "shard"_a, "shards"_a)
      .def("apply", &apply, "frame"_a, "rows"_a, "partials"_a, "pre_images"_a.none(), "waiting"_a, "limit"_a,
           "changed"_a = nb::none())
      .def("answer", &answer_from_table, "pulls"_a, "sequence"_a, "rows"_a, "limit"_a, "storing"_a = false);
}

}  // namespace esd::rows
