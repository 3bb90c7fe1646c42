// Python binding of the dispatch engine; documented in esd/native/engine.pyi.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "common/arrays.h"
#include "common/workers.h"
#include "engine/engine.h"
#include "engine/plan/initial_rows.h"
#include "engine/python/admission.h"
#include "engine/python/arena_pool.h"
#include "engine/python/plan_dicts.h"
#include "engine/python/sample_ids.h"
#include "engine/python/table_sizes.h"
#include "engine/python/ways.h"
#include "engine/rows/index_types.h"
#include "engine/rows/row_state.h"
#include "engine/sync/sync.h"

namespace nb = nanobind;

namespace esd {
namespace {

using Integers = In1<std::int32_t>;
using Reals = In1<double>;
using Limits = std::tuple<Integers, Integers, Reals, Reals>;  // least and most workloads, sample and fixed costs
using Fields = In1<std::uint32_t>;

std::vector<std::uint32_t> check_cache_sizes(const std::vector<std::int64_t>& cache_sizes) {
  if (cache_sizes.empty() || cache_sizes.size() > kMaxWorkers) {
    throw std::invalid_argument(std::to_string(cache_sizes.size()) + " workers, there must be 1.." +
                                std::to_string(kMaxWorkers));
  }
  for (std::size_t j = 0; j < cache_sizes.size(); ++j) {
    if (cache_sizes[j] >= 1 && cache_sizes[j] < kNoSlot) continue;
    throw std::invalid_argument("the cache of worker " + std::to_string(j) + " is " + std::to_string(cache_sizes[j]) +
                                ", it must be in 1.." + std::to_string(kNoSlot - 1));
  }
  return {cache_sizes.begin(), cache_sizes.end()};
}

// The engine as Python sees it: calls release the GIL, and run one after another.
class SharedEngine {
 public:
  SharedEngine(const std::vector<std::int64_t>& cache_sizes, const std::string& policy,
               const std::vector<std::int64_t>& table_sizes, std::uint64_t max_rows,
               const std::vector<std::uint32_t>& row_ttls, std::uint32_t window, std::size_t spare_rows,
               const RowSizes::Shares& gradient_shares, const RowSizes::Shares& value_shares, const Way* sync)
      : engine_({check_cache_sizes(cache_sizes), policy, check_table_sizes(table_sizes), max_rows, row_ttls,
                 gradient_shares, value_shares, window, spare_rows},
                sync == nullptr ? default_way() : *sync) {}

  void prepare(const Ids& ids, const std::optional<Lengths>& lengths) {
    const SampleIds given = sample_ids(ids, lengths);
    const ExclusiveCall call(*this);
    engine_.prepare(given);
  }

  void prepare_shared(SharedBatchIds& ids) {
    const ExclusiveCall call(*this);
    engine_.prepare(ids.found());
  }

  nb::ndarray<nb::numpy, std::int32_t, nb::ndim<2>> costs(const Integers& link_costs) {
    check_length("link_costs", link_costs);
    return scores([&](std::int32_t* out) { engine_.costs(link_costs.data(), out); });
  }

  nb::ndarray<nb::numpy, std::int32_t, nb::ndim<2>> room_needed() {
    return scores([&](std::int32_t* out) { engine_.room_needed(out); });
  }

  nb::ndarray<nb::numpy, std::int32_t, nb::ndim<2>> training_shares() {
    return scores([&](std::int32_t* out) { engine_.training_shares(out); });
  }

  nb::ndarray<nb::numpy, std::int32_t, nb::ndim<2>> affinity(const std::optional<Fields>& fields, bool latest) {
    const esd::AtHand at_hand = latest ? esd::AtHand::kLatest : esd::AtHand::kTrained;
    if (!fields) return scores([&](std::int32_t* out) { engine_.affinity(at_hand, out); });
    const std::vector<std::uint32_t> chosen(fields->data(), fields->data() + fields->size());
    return scores([&](std::int32_t* out) { engine_.affinity(at_hand, chosen, out); });
  }

  nb::tuple joint(const Integers& link_costs, const Integers& capacities, std::uint64_t seed, double seconds,
                  unsigned wide_rounds, unsigned narrow_rounds, const std::optional<Limits>& limits,
                  const std::vector<std::uint32_t>& lookahead,
                  const std::array<std::optional<unsigned>, 2>& most_rounds,
                  const std::optional<std::pair<Integers, Integers>>& sites) {
    check_length("link_costs", link_costs);
    check_length("capacities", capacities);
    WorkloadLimits bounds{};
    if (limits) {
      const auto& [least, most, sample_costs, fixed_costs] = *limits;
      check_length("least workloads", least);
      check_length("most workloads", most);
      check_length("sample costs", sample_costs);
      check_length("fixed costs", fixed_costs);
      bounds = {least.data(), most.data(), sample_costs.data(), fixed_costs.data()};
    }
    JointSites places{};
    if (sites) {
      check_length("sites of workers", sites->second);
      const std::int32_t* const of_workers = sites->second.data();
      const unsigned count =
          static_cast<unsigned>(*std::max_element(of_workers, of_workers + sites->second.size())) + 1;
      places = {sites->first.data(), of_workers, count};
    }
    constexpr unsigned kAny = std::numeric_limits<unsigned>::max();
    JointResult result;
    {
      const ExclusiveCall call(*this);
      if (sites) check_samples(sites->first);
      result = engine_.joint({link_costs.data(),
                              capacities.data(),
                              engine_.workers(),
                              seed,
                              wide_rounds,
                              narrow_rounds,
                              lookahead,
                              deadline(seconds),
                              {most_rounds[0].value_or(kAny), most_rounds[1].value_or(kAny)},
                              limits ? &bounds : nullptr,
                              sites ? &places : nullptr});
    }
    return nb::make_tuple(to_numpy(std::move(result.assignment)), result.cost, result.start_cost,
                          nb::make_tuple(result.rounds[0], result.rounds[1]));
  }

  nb::tuple preview(const Integers& assignment) {
    Preview expected;
    {
      const ExclusiveCall call(*this);
      check_samples(assignment);
      expected = engine_.preview(assignment.data());
    }
    return nb::make_tuple(to_numpy(std::move(expected.trained)), to_numpy(std::move(expected.moved)));
  }

  IterationColumns commit(const Integers& assignment, const std::optional<std::vector<std::int64_t>>& push_limits,
                          const PythonAdmittedIds* admitted) {
    if (push_limits && push_limits->size() != engine_.workers()) {
      throw std::invalid_argument("push_limits has " + std::to_string(push_limits->size()) + " numbers for " +
                                  std::to_string(engine_.workers()) + " workers");
    }
    IterationPlans plans;
    {
      const ExclusiveCall call(*this);
      check_samples(assignment);
      if (admitted != nullptr) check_admitted(*admitted);
      plans = engine_.commit(assignment.data(), pool_->take(), push_limits ? push_limits->data() : nullptr);
      if (admitted != nullptr) add_initial_rows(admitted->initial(), plans);
    }
    return {std::move(plans), pool_};
  }

  void look_ahead(const In1<std::uint64_t>& ids, std::uint32_t iteration) {
    const ExclusiveCall call(*this);
    engine_.look_ahead(ids.data(), ids.size(), iteration);
  }

  // Its arena is as long as the caches, too long for the pool of the iterations' arenas.
  nb::list flush() {
    FlushPlans plans;
    {
      const ExclusiveCall call(*this);
      plans = engine_.flush();
    }
    return to_python(std::move(plans), std::make_shared<ArenaPool>());
  }

  nb::bytes snapshot() {
    nb::object bytes;
    {
      const ExclusiveCall call(*this);
      engine_.snapshot([&](std::size_t size) {
        const nb::gil_scoped_acquire held;
        bytes = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size)));
        if (!bytes.is_valid()) nb::raise_python_error();
        return PyBytes_AsString(bytes.ptr());
      });
    }
    return nb::cast<nb::bytes>(bytes);
  }

  void restore(const nb::bytes& bytes, bool warm) {
    const char* data = bytes.c_str();
    const std::size_t size = bytes.size();
    const ExclusiveCall call(*this);
    engine_.restore(data, size, warm);
  }

  Engine::Savepoint savepoint() {
    const ExclusiveCall call(*this);
    return engine_.savepoint();
  }

  void roll_back(const Engine::Savepoint& before) {
    const ExclusiveCall call(*this);
    engine_.roll_back(before);
  }

  // What each worker caches: one dict of columns per worker, by table ascending by slot.
  nb::list contents() {
    struct Columns {
      std::vector<std::uint64_t> ids;
      std::vector<std::uint32_t> slots;
      std::vector<std::int64_t> versions;
      std::vector<std::uint8_t> latest;
    };
    std::vector<Columns> workers;
    {
      const ExclusiveCall call(*this);
      for (unsigned j = 0; j < engine_.workers(); ++j) {
        Columns columns;
        const CacheMirror& cache = engine_.cache(j);
        for (SlotIndex slot = 0; slot < cache.slots(); ++slot) {
          if (cache.copies[slot].row == kNoRow) continue;
          const RowState& row = engine_.index()[cache.copies[slot].row];
          columns.ids.push_back(row.id);
          columns.slots.push_back(cache.table_slot(slot));
          columns.versions.push_back(row.full_version());
          columns.latest.push_back(row.latest().contains(j));
        }
        workers.push_back(std::move(columns));
      }
    }
    nb::list caches;
    for (Columns& columns : workers) {
      nb::dict cache;
      cache["ids"] = to_numpy(std::move(columns.ids));
      cache["slots"] = to_numpy(std::move(columns.slots));
      cache["versions"] = to_numpy(std::move(columns.versions));
      cache["latest"] = to_numpy(std::move(columns.latest)).cast().attr("astype")("bool");
      caches.append(cache);
    }
    return caches;
  }

  nb::dict stats() {
    std::size_t ids, index_bytes, cache_bytes;
    std::vector<std::int64_t> cached;
    {
      const ExclusiveCall call(*this);
      ids = engine_.index().ids();
      index_bytes = engine_.index().memory_bytes();
      cache_bytes = engine_.cache_bytes();
      for (unsigned j = 0; j < engine_.workers(); ++j) cached.push_back(engine_.cache(j).rows());
    }
    nb::dict stats;
    stats["ids"] = ids;
    stats["index_bytes"] = index_bytes;
    stats["cache_bytes"] = cache_bytes;
    stats["cached_rows"] = to_numpy(std::move(cached));
    return stats;
  }

  template <typename Get>
  auto read(Get get) {
    const ExclusiveCall call(*this);
    return get(engine_);
  }

 private:
  // Held during a call of the engine.
  struct ExclusiveCall {
    explicit ExclusiveCall(SharedEngine& shared) : lock(shared.mutex_) {}
    nb::gil_scoped_release released;  // before the lock is taken, since a thread that waits must not hold the GIL
    std::lock_guard<std::mutex> lock;
  };

  void check_samples(const Integers& assignment) const {
    if (assignment.size() == engine_.batch().samples) return;
    throw std::invalid_argument("assignment has " + std::to_string(assignment.size()) + " elements for " +
                                std::to_string(engine_.batch().samples) + " samples");
  }

  void check_admitted(const PythonAdmittedIds& admitted) const {
    const BatchIds& all = admitted.initial().batch;
    const std::size_t others = admitted.initial().ids.size();
    if (all.samples == engine_.batch().samples && all.distinct() - others == engine_.batch().distinct()) return;
    throw std::invalid_argument("the admitted ids are " + std::to_string(all.distinct() - others) + " of " +
                                std::to_string(all.samples) + " samples, the prepared batch has " +
                                std::to_string(engine_.batch().distinct()) + " ids of " +
                                std::to_string(engine_.batch().samples) + " samples");
  }

  template <typename Values>
  void check_length(const char* name, const Values& values) const {
    if (values.size() == engine_.workers()) return;
    throw std::invalid_argument(std::string(name) + " has " + std::to_string(values.size()) + " elements for " +
                                std::to_string(engine_.workers()) + " workers");
  }

  static std::chrono::steady_clock::time_point deadline(double seconds) {
    using Clock = std::chrono::steady_clock;
    constexpr double kForever = 1e6;  // what is longer would not fit the clock
    if (!(seconds < kForever)) return Clock::time_point::max();
    return Clock::now() +
           std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::max(seconds, 0.0)));
  }

  template <typename Fill>
  nb::ndarray<nb::numpy, std::int32_t, nb::ndim<2>> scores(Fill fill) {
    std::vector<std::int32_t> values;
    std::size_t samples = 0;
    {
      const ExclusiveCall call(*this);
      samples = engine_.batch().samples;
      values.resize(samples * engine_.workers());
      fill(values.data());
    }
    return to_numpy(std::move(values), samples, engine_.workers());
  }

  std::mutex mutex_;
  Engine engine_;
  const std::shared_ptr<ArenaPool> pool_ = std::make_shared<ArenaPool>();
};

}  // namespace
}  // namespace esd

// The modules `engine` and `wide_engine`. A CacheTooSmall of the latter is one of the former, too.
NB_MODULE(ESD_ENGINE_MODULE, module) {
  using esd::IterationColumns;
  using esd::SharedEngine;
  module.doc() = "The dispatch engine. See engine.pyi.";
  nb::object refusal = nb::borrow(PyExc_ValueError);
  if (esd::kMaxWorkers > 64) refusal = nb::module_::import_("esd.native.engine").attr("CacheTooSmall");
  nb::exception<esd::CacheTooSmall>(module, "CacheTooSmall", refusal);
  nb::class_<IterationColumns>(module, "IterationColumns")
      .def("__len__", &IterationColumns::size)
      .def("__getitem__", &IterationColumns::operator[], nb::arg("worker"))
      .def("__iter__", [](const IterationColumns& columns) { return nb::iter(columns.all()); })
      .def("messages", &IterationColumns::messages, nb::arg("epoch"), nb::arg("dense").noconvert(),
           nb::arg("labels").noconvert(), nb::arg("lengths").noconvert() = nb::none(),
           nb::arg("weights").noconvert() = nb::none(), nb::arg("groups").noconvert() = nb::none(),
           nb::arg("references").noconvert() = nb::none(), nb::arg("chunks").noconvert() = nb::none(),
           nb::arg("roles").noconvert() = nb::none())
      .def_prop_ro("forgotten", &IterationColumns::forgotten)
      .def_prop_ro("expired", &IterationColumns::expired)
      .def_prop_ro("counts", &IterationColumns::counts, nb::rv_policy::automatic)
      .def_prop_ro("figures", &IterationColumns::figures, nb::rv_policy::automatic)
      .def_prop_ro("direct", &IterationColumns::direct, nb::rv_policy::automatic)
      .def_prop_ro("table_counts", &IterationColumns::table_counts, nb::rv_policy::automatic);
  esd::bind_ways(module);
  esd::bind_admission(module);
  nb::class_<esd::SharedBatchIds>(module, "BatchIds")
      .def(nb::init<esd::Ids, std::optional<esd::Lengths>>(), nb::arg("ids").noconvert(),
           nb::arg("lengths").noconvert() = nb::none());
  nb::class_<esd::Engine::Savepoint>(module, "Savepoint");
  nb::class_<SharedEngine>(module, "Engine")
      .def(nb::init<const std::vector<std::int64_t>&, const std::string&, const std::vector<std::int64_t>&,
                    std::uint64_t, const std::vector<std::uint32_t>&, std::uint32_t, std::size_t,
                    const std::vector<double>&, const std::vector<double>&, const esd::Way*>(),
           nb::arg("cache_sizes"), nb::arg("policy"), nb::kw_only(),
           nb::arg("table_sizes") = std::vector<std::int64_t>(), nb::arg("max_rows") = 0,
           nb::arg("row_ttls") = std::vector<std::uint32_t>(), nb::arg("window") = 0, nb::arg("spare_rows") = 0,
           nb::arg("gradient_shares") = esd::RowSizes::Shares(), nb::arg("value_shares") = esd::RowSizes::Shares(),
           nb::arg("sync") = nb::none())
      .def("prepare", &SharedEngine::prepare_shared, nb::arg("ids"))
      .def("prepare", &SharedEngine::prepare, nb::arg("ids").noconvert(), nb::arg("lengths").noconvert() = nb::none())
      .def("costs", &SharedEngine::costs, nb::arg("link_costs").noconvert())
      .def("training_shares", &SharedEngine::training_shares)
      .def("preview", &SharedEngine::preview, nb::arg("assignment").noconvert())
      .def("room_needed", &SharedEngine::room_needed)
      .def("affinity", &SharedEngine::affinity, nb::arg("fields").noconvert() = nb::none(), nb::kw_only(),
           nb::arg("latest") = false)
      .def("joint", &SharedEngine::joint, nb::arg("link_costs").noconvert(), nb::arg("capacities").noconvert(),
           nb::arg("seed"), nb::arg("seconds") = std::numeric_limits<double>::infinity(), nb::arg("wide_rounds") = 5,
           nb::arg("narrow_rounds") = 30, nb::arg("limits") = nb::none(),
           nb::arg("lookahead") = std::vector<std::uint32_t>(),
           nb::arg("most_rounds") = std::array<std::optional<unsigned>, 2>(), nb::arg("sites").noconvert() = nb::none())
      .def("commit", &SharedEngine::commit, nb::arg("assignment").noconvert(), nb::arg("push_limits") = nb::none(),
           nb::arg("admitted") = nb::none())
      .def("look_ahead", &SharedEngine::look_ahead, nb::arg("ids").noconvert(), nb::arg("iteration"))
      .def("flush", &SharedEngine::flush)
      .def("stats", &SharedEngine::stats)
      .def("contents", &SharedEngine::contents)
      .def("snapshot", &SharedEngine::snapshot)
      .def("restore", &SharedEngine::restore, nb::arg("snapshot"), nb::arg("warm") = true)
      .def("savepoint", &SharedEngine::savepoint)
      .def("roll_back", &SharedEngine::roll_back, nb::arg("before"))
      .def_prop_ro("workers", [](SharedEngine& e) { return e.read([](auto& x) { return x.workers(); }); })
      .def_prop_ro("iteration", [](SharedEngine& e) { return e.read([](auto& x) { return x.iteration(); }); })
      .def_prop_ro("distinct", [](SharedEngine& e) { return e.read([](auto& x) { return x.distinct(); }); })
      .def_prop_ro("lookups", [](SharedEngine& e) { return e.read([](auto& x) { return x.lookups(); }); })
      .def_prop_ro("hits", [](SharedEngine& e) { return e.read([](auto& x) { return x.hits(); }); })
      .def_prop_ro("memory_bytes", [](SharedEngine& e) { return e.read([](auto& x) { return x.memory_bytes(); }); });
}
