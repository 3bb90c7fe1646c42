// The Python module esd.native.solver, whose interface is documented in esd/native/solver.pyi. It checks arguments,
// chooses the integer type that is exact for the costs, and returns results in the units of the costs.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/to_numpy.h"
#include "solver/field_profile.h"
#include "solver/fixed_point.h"
#include "solver/greedy.h"
#include "solver/integer_costs.h"
#include "solver/problem.h"
#include "solver/rendezvous.h"
#include "solver/solve.h"

namespace nb = nanobind;

namespace {

using esd::to_numpy;

using AnyMatrix = nb::ndarray<nb::ro, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using AnyVector = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Capacities = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Scores = nb::ndarray<const std::int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Values = nb::ndarray<const std::uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ids = nb::ndarray<const std::uint64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Order = nb::ndarray<const std::uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

[[noreturn]] void refuse(const std::string& message) { throw nb::value_error(message.c_str()); }

// Calls `body` with a pointer to the costs in their own type.
template <typename Body>
auto with_costs(const AnyMatrix& costs, Body body) {
  if (costs.dtype() == nb::dtype<std::int32_t>()) return body(static_cast<const std::int32_t*>(costs.data()));
  if (costs.dtype() == nb::dtype<float>()) return body(static_cast<const float*>(costs.data()));
  if (costs.dtype() == nb::dtype<double>()) return body(static_cast<const double*>(costs.data()));
  refuse("costs must be int32, float32 or float64");
}

struct Shape {
  int rows, workers;
};

Shape check_shape(std::size_t k, std::size_t n, const Capacities& capacities) {
  if (n < 1 || n > esd::kMaxWorkers)
    refuse("costs have " + std::to_string(n) + " columns, the number of workers must be in 1.." +
           std::to_string(esd::kMaxWorkers));
  if (k < 1) refuse("costs have 0 rows, at least one sample is needed");
  if (k > std::size_t{1} << 30) refuse("costs have " + std::to_string(k) + " rows, the limit is 2^30");
  if (capacities.shape(0) != n)
    refuse(std::to_string(capacities.shape(0)) + " capacities given for " + std::to_string(n) + " workers");
  return {static_cast<int>(k), static_cast<int>(n)};
}

Shape check_shape(const AnyMatrix& costs, const Capacities& capacities) {
  return check_shape(costs.shape(0), costs.shape(1), capacities);
}

std::int64_t check_capacities(const Capacities& capacities) {
  std::int64_t sum = 0;
  for (std::size_t j = 0; j < capacities.shape(0); ++j) {
    if (capacities(j) < 0)
      refuse("capacity of worker " + std::to_string(j) + " is " + std::to_string(capacities(j)) +
             ", it must not be negative");
    sum += capacities(j);
  }
  return sum;
}

void check_sum(const Capacities& capacities, int rows) {
  const std::int64_t sum = check_capacities(capacities);
  if (sum != rows)
    refuse("capacities sum to " + std::to_string(sum) + ", they must sum to the number of samples, " +
           std::to_string(rows));
}

// Reads the prices as doubles, zeros if none are given, and checks their number and values.
std::vector<double> read_prices(const std::optional<AnyVector>& prices, int workers) {
  std::vector<double> read(workers, 0.0);
  if (!prices) return read;
  if (prices->shape(0) != read.size())
    refuse(std::to_string(prices->shape(0)) + " prices given for " + std::to_string(workers) + " workers");
  for (std::size_t j = 0; j < read.size(); ++j) {
    if (prices->dtype() == nb::dtype<double>())
      read[j] = static_cast<const double*>(prices->data())[j];
    else if (prices->dtype() == nb::dtype<std::int64_t>())
      read[j] = static_cast<double>(static_cast<const std::int64_t*>(prices->data())[j]);
    else
      refuse("prices must be int64 or float64");
    if (!std::isfinite(read[j]))
      refuse("price of worker " + std::to_string(j) + " is " + std::to_string(read[j]) + ", it must be finite");
  }
  return read;
}

struct Solution {
  nb::object assignment, cost, prices;
  double gap;
  std::string algorithm;
  int passes, augmentations;
};

// The result of a solve in integers, and the cost in the caller's own numbers.
struct Outcome {
  esd::IntegerSolution solution;
  double float_cost = 0;
  std::int64_t integer_cost = 0;
  int exponent = 0;  // The integers of the solve are the costs times 2^exponent.
};

// Turns start prices into integers of the solve, relative to the first worker with capacity.
std::vector<std::int64_t> integer_start(const std::vector<double>& prices, int first, int exponent, double largest) {
  const esd::PowerOfTwo scale(exponent);
  std::vector<std::int64_t> start;
  for (double price : prices) start.push_back(esd::start_price(price, prices[first], largest, scale));
  return start;
}

// Solves in integers of type T, and adds the costs of the assignment up in the type of the costs.
template <typename T, typename C>
void solve_as(const C* costs, Shape shape, const int* capacities, const std::optional<std::vector<double>>& prices,
              double largest, std::optional<esd::Algorithm> wanted, int pass_limit, Outcome& out) {
  std::vector<T> rounded;
  const T* by_row;
  if constexpr (std::is_same_v<T, C>) {
    by_row = costs;
  } else {
    rounded.resize(static_cast<std::size_t>(shape.rows) * shape.workers);
    esd::round_costs(costs, static_cast<std::int64_t>(rounded.size()), esd::PowerOfTwo(out.exponent), rounded.data());
    by_row = rounded.data();
  }
  const esd::Problem<T> problem(by_row, shape.rows, shape.workers, capacities);
  std::vector<std::int64_t> start;
  if (prices) start = integer_start(*prices, problem.active.front(), out.exponent, largest);
  const bool integers = sizeof(T) == 4 || std::is_integral_v<C>;
  const esd::Algorithm algorithm = wanted ? *wanted : integers ? esd::Algorithm::kDual : esd::Algorithm::kPaths;
  out.solution = esd::solve(problem, prices ? start.data() : nullptr, algorithm, pass_limit);
  for (std::size_t i = 0; i < out.solution.assignment.size(); ++i) {
    const C cost = costs[i * shape.workers + out.solution.assignment[i]];
    if constexpr (std::is_integral_v<C>)
      out.integer_cost += cost;
    else
      out.float_cost += static_cast<double>(cost);
  }
}

// Chooses the integer type and the exponent for the costs, and solves.
template <typename C>
Outcome solve_costs(const C* costs, Shape shape, const int* capacities,
                    const std::optional<std::vector<double>>& prices, std::optional<esd::Algorithm> wanted,
                    int pass_limit) {
  Outcome out;
  const C largest = esd::largest_cost(costs, shape.rows, shape.workers);
  const auto most = static_cast<double>(largest);
  bool narrow = most < static_cast<double>(1 << esd::kNarrowBits);
  if constexpr (!std::is_integral_v<C>) {
    out.exponent = esd::exponent_for(largest, esd::kNarrowBits);
    narrow =
        esd::all_integers(costs, static_cast<std::int64_t>(shape.rows) * shape.workers, esd::PowerOfTwo(out.exponent));
    if (!narrow) out.exponent = esd::exponent_for(largest, esd::kWideBits);
  }
  if (narrow)
    solve_as<std::int32_t>(costs, shape, capacities, prices, most, wanted, pass_limit, out);
  else
    solve_as<std::int64_t>(costs, shape, capacities, prices, most, wanted, pass_limit, out);
  return out;
}

Solution solve(const AnyMatrix& costs, const Capacities& capacities, const std::optional<AnyVector>& prices,
               const std::string& algorithm, int pass_limit) {
  const Shape shape = check_shape(costs, capacities);
  check_sum(capacities, shape.rows);
  std::optional<esd::Algorithm> wanted;
  if (algorithm == "dual")
    wanted = esd::Algorithm::kDual;
  else if (algorithm == "paths")
    wanted = esd::Algorithm::kPaths;
  else if (algorithm != "auto")
    refuse("algorithm '" + algorithm + "' is unknown, it must be auto, dual or paths");
  if (pass_limit < 0) refuse("pass_limit is " + std::to_string(pass_limit) + ", it must not be negative");
  std::optional<std::vector<double>> start;
  if (prices) start = read_prices(prices, shape.workers);

  const int* capacity = capacities.data();
  Outcome out = with_costs(costs, [&](const auto* values) {
    nb::gil_scoped_release unlocked;
    return solve_costs(values, shape, capacity, start, wanted, pass_limit);
  });

  Solution solution;
  const esd::PowerOfTwo unscale(-out.exponent);
  if (costs.dtype() == nb::dtype<std::int32_t>()) {
    solution.cost = nb::int_(out.integer_cost);
    solution.prices = to_numpy(std::move(out.solution.prices)).cast();
  } else {
    std::vector<double> unscaled;
    for (std::int64_t price : out.solution.prices) unscaled.push_back(unscale(static_cast<double>(price)));
    solution.cost = nb::float_(out.float_cost);
    solution.prices = to_numpy(std::move(unscaled)).cast();
  }
  solution.assignment = to_numpy(std::move(out.solution.assignment)).cast();
  solution.gap = unscale(out.solution.gap);
  solution.algorithm = out.solution.algorithm == esd::Algorithm::kDual ? "dual" : "paths";
  solution.passes = out.solution.passes;
  solution.augmentations = out.solution.augmentations;
  return solution;
}

void check(std::size_t samples, std::size_t workers, const Capacities& capacities,
           const std::optional<AnyVector>& prices) {
  const Shape shape = check_shape(samples, workers, capacities);
  check_sum(capacities, shape.rows);
  read_prices(prices, shape.workers);
}

nb::object rank(const AnyMatrix& costs, const Capacities& capacities, const std::string& criterion,
                const std::optional<AnyVector>& prices) {
  const Shape shape = check_shape(costs, capacities);
  if (check_capacities(capacities) == 0) refuse("capacities sum to 0, some worker must have capacity");
  const std::vector<double> added = read_prices(prices, shape.workers);
  const char* names[] = {"min2-min", "min3-min", "min3-min2", "row-mean"};
  int index = 0;
  while (index < 4 && criterion != names[index]) ++index;
  if (index == 4)
    refuse("criterion '" + criterion + "' is unknown, it must be min2-min, min3-min, min3-min2 or row-mean");
  std::vector<int> active;
  for (int j = 0; j < shape.workers; ++j)
    if (capacities(j) > 0) active.push_back(j);
  return to_numpy(with_costs(costs,
                             [&](const auto* values) {
                               nb::gil_scoped_release unlocked;
                               esd::largest_cost(values, shape.rows, shape.workers);
                               std::vector<double> ranked(shape.rows);
                               esd::criterion_values(values, shape.rows, shape.workers, active, added.data(),
                                                     static_cast<esd::Criterion>(index), ranked.data());
                               return esd::descending_order(ranked);
                             }))
      .cast();
}

nb::object greedy(const AnyMatrix& costs, const Capacities& capacities, const Order& order,
                  const std::optional<AnyVector>& prices) {
  const Shape shape = check_shape(costs, capacities);
  const std::int64_t sum = check_capacities(capacities);
  const std::size_t count = order.shape(0);
  if (sum < static_cast<std::int64_t>(count))
    refuse("capacities sum to " + std::to_string(sum) + ", too little for " + std::to_string(count) + " samples");
  for (std::size_t r = 0; r < count; ++r)
    if (order(r) >= static_cast<std::uint32_t>(shape.rows))
      refuse("order[" + std::to_string(r) + "] is " + std::to_string(order(r)) + ", costs have " +
             std::to_string(shape.rows) + " rows");
  const std::vector<double> added = read_prices(prices, shape.workers);
  std::vector<std::int32_t> worker_of(count);
  with_costs(costs, [&](const auto* values) {
    nb::gil_scoped_release unlocked;
    esd::largest_cost(values, shape.rows, shape.workers);
    esd::greedy(values, shape.workers, order.data(), count, added.data(),
                {capacities.data(), capacities.data() + shape.workers}, worker_of.data());
  });
  return to_numpy(std::move(worker_of)).cast();
}

nb::object allocate(const Scores& scores, const Capacities& capacities, std::uint64_t start) {
  const Shape shape = check_shape(scores.shape(0), scores.shape(1), capacities);
  check_sum(capacities, shape.rows);
  std::vector<std::int32_t> worker_of(shape.rows);
  {
    nb::gil_scoped_release unlocked;
    esd::allocate(scores.data(), scores.shape(0), scores.shape(1), start,
                  {capacities.data(), capacities.data() + shape.workers}, worker_of.data());
  }
  return to_numpy(std::move(worker_of)).cast();
}

nb::object assign_by_value(const Values& values, const Capacities& capacities) {
  const Shape shape = check_shape(values.shape(0), capacities.shape(0), capacities);
  check_sum(capacities, shape.rows);
  std::vector<std::int32_t> worker_of(shape.rows);
  {
    nb::gil_scoped_release unlocked;
    esd::assign_by_value(values.data(), values.shape(0), {capacities.data(), capacities.data() + shape.workers},
                         worker_of.data());
  }
  return to_numpy(std::move(worker_of)).cast();
}

nb::object profile_fields(const Ids& ids, const Scores& capacities, const Capacities& link_costs) {
  const std::size_t workers = capacities.shape(1);
  if (link_costs.shape(0) != workers || workers < 1 || workers > esd::kMaxWorkers)
    refuse("capacities are of " + std::to_string(workers) + " workers, link_costs of " +
           std::to_string(link_costs.shape(0)) + "; they must be of the same 1.." + std::to_string(esd::kMaxWorkers));
  std::vector<std::vector<int>> rooms;
  std::vector<std::size_t> ends;
  std::size_t samples = 0;
  for (std::size_t b = 0; b < capacities.shape(0); ++b) {
    const std::int32_t* row = capacities.data() + b * workers;
    for (std::size_t j = 0; j < workers; ++j) {
      if (row[j] < 0) refuse("capacities[" + std::to_string(b) + "] has a negative entry");
      samples += static_cast<std::size_t>(row[j]);
    }
    rooms.emplace_back(row, row + workers);
    ends.push_back(samples);
  }
  if (samples != ids.shape(0))
    refuse("capacities sum to " + std::to_string(samples) + ", there are " + std::to_string(ids.shape(0)) + " samples");
  std::vector<std::int64_t> costs;
  {
    nb::gil_scoped_release unlocked;
    const esd::ProfiledBatches batches{ids.data(), ids.shape(0), ids.shape(1), ends};
    costs = workers <= 64 ? esd::profile_fields<esd::WorkerSetOf<std::uint64_t>>(batches, rooms, link_costs.data())
                          : esd::profile_fields<esd::WorkerSet>(batches, rooms, link_costs.data());
  }
  return to_numpy(std::move(costs)).cast();
}

}  // namespace

NB_MODULE(solver, module) {
  nb::class_<Solution>(module, "Solution")
      .def_ro("assignment", &Solution::assignment)
      .def_ro("cost", &Solution::cost)
      .def_ro("prices", &Solution::prices)
      .def_ro("gap", &Solution::gap)
      .def_ro("algorithm", &Solution::algorithm)
      .def_ro("passes", &Solution::passes)
      .def_ro("augmentations", &Solution::augmentations);
  module.def("solve", &solve, nb::arg("costs").noconvert(), nb::arg("capacities").noconvert(),
             nb::arg("prices").noconvert() = nb::none(), nb::arg("algorithm") = "auto", nb::arg("pass_limit") = 64);
  module.def("check", &check, nb::arg("samples"), nb::arg("workers"), nb::arg("capacities").noconvert(),
             nb::arg("prices").noconvert() = nb::none());
  module.def("rank", &rank, nb::arg("costs").noconvert(), nb::arg("capacities").noconvert(), nb::arg("criterion"),
             nb::arg("prices").noconvert() = nb::none());
  module.def("greedy", &greedy, nb::arg("costs").noconvert(), nb::arg("capacities").noconvert(),
             nb::arg("order").noconvert(), nb::arg("prices").noconvert() = nb::none());
  module.def("assign_by_value", &assign_by_value, nb::arg("values").noconvert(), nb::arg("capacities").noconvert());
  module.def("profile_fields", &profile_fields, nb::arg("ids").noconvert(), nb::arg("capacities").noconvert(),
             nb::arg("link_costs").noconvert());
  module.def("allocate", &allocate, nb::arg("scores").noconvert(), nb::arg("capacities").noconvert(), nb::arg("start"));
}
