// The table of ways to synchronise: a class of each, with its options. esd/native/engine.pyi documents them.
#include "engine/python/ways.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "common/workers.h"
#include "engine/sync/bounded.h"
#include "engine/sync/on_demand.h"
#include "engine/sync/proactive.h"
#include "engine/sync/push_all.h"
#include "engine/sync/python/hot_samples.h"
#include "engine/sync/replicated.h"
#include "engine/sync/uncached.h"

namespace nb = nanobind;

namespace esd {
namespace {

WorkerSet set_of(const std::vector<unsigned>& workers) {
  WorkerSet set{};
  for (const unsigned worker : workers) {
    if (worker >= kMaxWorkers) throw std::invalid_argument("replicated by workers that are not there");
    set.add(static_cast<int>(worker));
  }
  return set;
}

}  // namespace

const Way& default_way() {
  static const WayOf<OnDemand> way;
  return way;
}

void bind_ways(nb::module_& module) {
  nb::class_<Way>(module, "Way");
  nb::class_<WayOf<OnDemand>, Way>(module, "OnDemand")
      .def(
          "__init__", [](WayOf<OnDemand>* way, bool direct) { new (way) WayOf<OnDemand>({direct}); }, nb::kw_only(),
          nb::arg("direct") = false);
  nb::class_<WayOf<PushAll>, Way>(module, "PushAll").def(nb::init<>());
  nb::class_<WayOf<Uncached>, Way>(module, "Uncached").def(nb::init<>());
  nb::class_<WayOf<Proactive>, Way>(module, "Proactive").def(nb::init<>());
  nb::class_<WayOf<Replicated>, Way>(module, "Replicated")
      .def(
          "__init__",
          [](WayOf<Replicated>* way, std::uint64_t room, const std::vector<unsigned>& workers, std::uint64_t seed,
             std::uint32_t first_iteration) {
            new (way) WayOf<Replicated>({room, set_of(workers), seed, first_iteration});
          },
          nb::kw_only(), nb::arg("room"), nb::arg("workers") = std::vector<unsigned>(), nb::arg("seed") = 0,
          nb::arg("first_iteration") = 0);
  nb::class_<WayOf<Bounded>, Way>(module, "Bounded")
      .def(
          "__init__",
          [](WayOf<Bounded>* way, std::uint32_t pull, std::uint32_t push, const std::vector<bool>& additive) {
            new (way) WayOf<Bounded>({{pull, push}, additive});
          },
          nb::kw_only(), nb::arg("pull"), nb::arg("push"), nb::arg("additive") = std::vector<bool>());
  nb::class_<SharedHotSamples>(module, "HotSamples")
      .def(nb::init<const std::vector<std::int64_t>&, std::uint64_t, unsigned, std::uint64_t>(), nb::arg("table_sizes"),
           nb::arg("room"), nb::arg("workers"), nb::arg("seed"))
      .def("judge", &SharedHotSamples::judge, nb::arg("ids").noconvert(), nb::arg("lengths").noconvert() = nb::none())
      .def("train", &SharedHotSamples::train, nb::arg("ids").noconvert(), nb::arg("lengths").noconvert() = nb::none())
      .def_prop_ro("memory_bytes", &SharedHotSamples::memory_bytes);
}

}  // namespace esd
