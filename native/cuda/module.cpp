// The Python module esd.native.cuda, whose interface is documented in esd/native/cuda.pyi. It holds the kernel's
// sources and runs its steps on the CPU.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/workers.h"
#include "cuda/host_teams.h"
#include "cuda/solve.h"

namespace nb = nanobind;

namespace {

using Costs = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using ChosenCosts = nb::ndarray<nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <typename T>
using Vector = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

const std::map<std::string, std::string> kSources = {
#include "cuda_sources.inc"
};

template <typename C>
void emulate_as(const Costs& costs, const Vector<const int>& capacities,
                const std::optional<Vector<const double>>& start, esd::CudaAlgorithm algorithm, int threads,
                unsigned seed, const Vector<std::int64_t>& report, const Vector<int>& assignment,
                const ChosenCosts& chosen_costs) {
  const esd::SolveCall<C> call{static_cast<const C*>(costs.data()),
                               static_cast<int>(costs.shape(0)),
                               static_cast<int>(costs.shape(1)),
                               capacities.data(),
                               start ? start->data() : nullptr,
                               report.data(),
                               assignment.data(),
                               static_cast<C*>(chosen_costs.data())};
  nb::gil_scoped_release unlocked;
  esd::SerialTeam team(threads, seed);
  const auto memory = std::make_unique<char[]>(esd::workspace_bytes(call.rows, call.workers));
  const auto board = std::make_unique<esd::LargestBoard>();
  if (call.workers <= 32)
    esd::solve_call<esd::NarrowWorkerSet>(team, call, algorithm, memory.get(), board.get());
  else
    esd::solve_call<esd::WorkerSet>(team, call, algorithm, memory.get(), board.get());
}

// Shapes and capacities are checked by esd.native.solver.check; the dtype decides the instance.
void emulate(const Costs& costs, const Vector<const int>& capacities, const std::optional<Vector<const double>>& start,
             const std::string& algorithm, int threads, unsigned seed, const Vector<std::int64_t>& report,
             const Vector<int>& assignment, const ChosenCosts& chosen_costs) {
  if (threads < 1 || threads > esd::kBlockThreads)
    throw nb::value_error(("threads is " + std::to_string(threads) + ", it must be in 1..1024").c_str());
  if (report.shape(0) < esd::kPrices + costs.shape(1) || assignment.shape(0) != costs.shape(0) ||
      chosen_costs.shape(0) != costs.shape(0) || capacities.shape(0) != costs.shape(1) ||
      chosen_costs.dtype() != costs.dtype())
    throw nb::value_error("an output does not fit the costs");
  const auto which = algorithm == "hungarian" ? esd::CudaAlgorithm::kHungarian : esd::CudaAlgorithm::kDual;
  const auto run = [&](auto zero) {
    emulate_as<decltype(zero)>(costs, capacities, start, which, threads, seed, report, assignment, chosen_costs);
  };
  if (costs.dtype() == nb::dtype<std::int32_t>())
    run(std::int32_t{});
  else if (costs.dtype() == nb::dtype<float>())
    run(float{});
  else if (costs.dtype() == nb::dtype<double>())
    run(double{});
  else
    throw nb::value_error("costs must be int32, float32 or float64");
}

}  // namespace

NB_MODULE(cuda, module) {
  module.attr("REPORT_WORDS") = static_cast<int>(esd::kPrices);
  module.attr("BLOCK_THREADS") = esd::kBlockThreads;
  module.def("sources", [] { return kSources; });
  module.def("workspace_bytes", &esd::workspace_bytes, nb::arg("samples"), nb::arg("workers"));
  module.def("emulate", &emulate, nb::arg("costs").noconvert(), nb::arg("capacities").noconvert(),
             nb::arg("start").noconvert().none(), nb::arg("algorithm"), nb::arg("threads"), nb::arg("seed"),
             nb::arg("report").noconvert(), nb::arg("assignment").noconvert(), nb::arg("chosen_costs").noconvert());
}
