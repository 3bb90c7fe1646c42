// The Python module esd.native.rows, whose interface is documented in esd/native/rows.pyi: the parameter server's
// operations on rows, for whole blocks and without the GIL.
#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "common/arrays.h"
#include "common/hot.h"
#include "common/initial_rows.h"
#include "rows/checksum.h"
#include "rows/exchange.h"
#include "rows/optimizers.h"
#include "rows/partial_gradients.h"
#include "rows/records_module.h"
#include "rows/tables_module.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace esd::rows {
namespace {

ESD_HOT void fill_untrained(const InitialRows& initial, const std::uint64_t* ids, const std::int64_t* versions,
                            std::size_t n, float* rows) {
  for (std::size_t i = 0; i < n; ++i) {
    if (versions[i] == 0) initial.fill(ids[i], rows + i * initial.width);
  }
}

void initialise(In1<std::uint64_t> ids, In1<std::int64_t> versions, InOut2<float> rows, std::size_t dimension,
                std::uint64_t seed, double scale) {
  require(versions.size() == ids.size() && rows.shape(0) == ids.size(), "ids, versions and rows differ in length");
  require(dimension <= rows.shape(1), "dimension is larger than the rows are wide");
  const InitialRows initial{seed, scale, dimension, rows.shape(1)};
  const nb::gil_scoped_release release;
  fill_untrained(initial, ids.data(), versions.data(), ids.size(), rows.data());
}

nb::object checksums(In1<std::uint64_t> ids, In1<std::int64_t> versions, In2<float> rows) {
  const std::size_t n = ids.size();
  require(versions.size() == n && rows.shape(0) == n, "ids, versions and rows differ in length");
  const Buffer<std::uint32_t> sums(n);
  {
    const nb::gil_scoped_release release;
    const std::size_t width = rows.shape(1);
    for (std::size_t i = 0; i < n; ++i) {
      sums.data[i] = row_checksum(ids.data()[i], versions.data()[i], rows.data() + i * width, width);
    }
  }
  return sums.array(n);
}

// The optimizer's inputs for a block of rows, row by row.
void require_block(const InOut2<float>& rows, const In2<float>& gradients, const In1<float>& rates) {
  require(rows.shape(0) == gradients.shape(0) && rates.size() == rows.shape(0),
          "rows, gradients and rates differ in length");
}

void apply_sgd(InOut2<float> rows, In2<float> gradients, In1<float> rates) {
  require_block(rows, gradients, rates);
  require(rows.shape(1) == gradients.shape(1), "an SGD row is D floats");
  const nb::gil_scoped_release release;
  const std::size_t d = rows.shape(1);
  for (std::size_t i = 0; i < rates.size(); ++i) {
    sgd(rows.data() + i * d, gradients.data() + i * d, 1, d, rates.data()[i]);
  }
}

void apply_adagrad(InOut2<float> rows, In2<float> gradients, In1<float> rates, float epsilon) {
  require_block(rows, gradients, rates);
  require(rows.shape(1) == gradients.shape(1) + 1, "a row-wise Adagrad row is D + 1 floats");
  const nb::gil_scoped_release release;
  const std::size_t d = gradients.shape(1);
  for (std::size_t i = 0; i < rates.size(); ++i) {
    rowwise_adagrad(rows.data() + i * (d + 1), gradients.data() + i * d, 1, d, rates.data()[i], epsilon);
  }
}

void apply_adam(InOut2<float> rows, In2<float> gradients, In1<std::uint32_t> steps, In1<float> rates, double epsilon,
                double beta1, double beta2) {
  require_block(rows, gradients, rates);
  require(steps.size() == rows.shape(0), "rows and steps differ in length");
  require(rows.shape(1) == 3 * gradients.shape(1), "an Adam row is 3 D floats");
  const nb::gil_scoped_release release;
  const std::size_t d = gradients.shape(1);
  for (std::size_t i = 0; i < rates.size(); ++i) {
    const std::int64_t step = steps.data()[i];
    adam(rows.data() + i * 3 * d, gradients.data() + i * d, &step, 1, d, {rates.data()[i], epsilon, beta1, beta2});
  }
}

void limit_norms(InOut2<float> rows, std::size_t dimension, double most) {
  require(dimension <= rows.shape(1), "a row has more values than floats");
  require(most >= 0.0, "the largest norm is negative");
  const nb::gil_scoped_release release;
  for (std::size_t i = 0; i < rows.shape(0); ++i) limit_norm(rows.data() + i * rows.shape(1), dimension, most);
}

// The columns of a block of gradients. `check` throws if columns differ in length.
struct Gradients {
  In1<std::uint64_t> ids;
  In1<std::int64_t> targets;
  InSets contributor_words;
  In1<std::uint32_t> steps;
  WorkerSets contributors = sets_of(contributor_words);

  void check() const {
    require(targets.size() == ids.size() && contributors.size == ids.size() && steps.size() == ids.size(),
            "ids, targets, contributors and steps differ in length");
  }
  PartialGradients::Split split(std::size_t i) const { return {targets.data()[i], steps.data()[i], contributors[i]}; }
};

void require_gradients(const PartialGradients& partials, std::size_t n, const In2<float>& gradients, unsigned worker) {
  require(gradients.shape(0) == n && gradients.shape(1) == partials.dimension(),
          "gradients do not have one row of D floats per id");
  require(worker < kMostWorkers, "worker slots are 0..127");
}

nb::object partials_inspect(const PartialGradients& partials, In1<std::uint64_t> ids, In1<std::int64_t> targets,
                            const InSets& contributors, In1<std::uint32_t> steps, unsigned worker) {
  const Gradients block{ids, targets, contributors, steps};
  block.check();
  require(worker < kMostWorkers, "worker slots are 0..127");
  const Buffer<std::uint8_t> arrivals(ids.size());
  {
    const nb::gil_scoped_release release;
    const std::lock_guard lock(partials.mutex());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      arrivals.data[i] = static_cast<std::uint8_t>(partials.inspect(ids.data()[i], block.split(i), worker));
    }
  }
  return arrivals.array(ids.size());
}

void partials_add(PartialGradients& partials, In1<std::uint64_t> ids, In1<std::int64_t> targets,
                  const InSets& contributors, In1<std::uint32_t> steps, In2<float> gradients, unsigned worker) {
  const Gradients block{ids, targets, contributors, steps};
  block.check();
  require_gradients(partials, ids.size(), gradients, worker);
  const nb::gil_scoped_release release;
  const std::lock_guard lock(partials.mutex());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::uint64_t id = ids.data()[i];
    const auto arrival = partials.inspect(id, block.split(i), worker);
    if (arrival == Arrival::kRepeated) continue;
    require(arrival != Arrival::kConflict, "a gradient disagrees with the pending ones");
    partials.add(id, block.split(i), worker, gradients.data() + i * partials.dimension());
  }
}

nb::object partials_sum(const PartialGradients& partials, In1<std::uint64_t> ids, In2<float> gradients,
                        unsigned worker) {
  require_gradients(partials, ids.size(), gradients, worker);
  const std::size_t dimension = partials.dimension();
  const Buffer<float> sums(ids.size() * dimension);
  {
    const nb::gil_scoped_release release;
    const std::lock_guard lock(partials.mutex());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      partials.sum(ids.data()[i], worker, gradients.data() + i * dimension, sums.data + i * dimension);
    }
  }
  return sums.array(ids.size(), dimension);
}

void partials_discard(PartialGradients& partials, In1<std::uint64_t> ids) {
  const nb::gil_scoped_release release;
  const std::lock_guard lock(partials.mutex());
  for (std::size_t i = 0; i < ids.size(); ++i) partials.discard(ids.data()[i]);
}

nb::tuple partials_splits(const PartialGradients& partials, In1<std::uint64_t> ids) {
  const std::size_t n = ids.size();
  const Buffer<std::int64_t> targets(n);
  const Buffer<std::uint64_t> contributors(2 * n);
  const Buffer<std::uint32_t> steps(n);
  {
    const nb::gil_scoped_release release;
    const std::lock_guard lock(partials.mutex());
    for (std::size_t i = 0; i < n; ++i) {
      const PartialGradients::Split split = partials.split(ids.data()[i]);
      targets.data[i] = split.target;
      contributors.data[2 * i] = static_cast<std::uint64_t>(split.contributors.bits);
      contributors.data[2 * i + 1] = static_cast<std::uint64_t>(split.contributors.bits >> 64);
      steps.data[i] = static_cast<std::uint32_t>(split.step);
    }
  }
  return nb::make_tuple(targets.array(n), contributors.array(n, 2), steps.array(n));
}

// A getter of PartialGradients that holds its lock.
template <typename Value>
auto locked(Value (PartialGradients::*read)() const) {
  return [read](const PartialGradients& partials) {
    const std::lock_guard lock(partials.mutex());
    return (partials.*read)();
  };
}

}  // namespace

NB_MODULE(rows, m) {
  m.def("initialise", &initialise, "ids"_a, "versions"_a, "rows"_a.noconvert(), "dimension"_a, "seed"_a, "scale"_a);
  m.def("checksums", &checksums, "ids"_a, "versions"_a, "rows"_a);
  m.def("sgd", &apply_sgd, "rows"_a.noconvert(), "gradients"_a, "rates"_a);
  m.def("rowwise_adagrad", &apply_adagrad, "rows"_a.noconvert(), "gradients"_a, "rates"_a, "epsilon"_a);
  m.def("adam", &apply_adam, "rows"_a.noconvert(), "gradients"_a, "steps"_a, "rates"_a, "epsilon"_a, "beta1"_a,
        "beta2"_a);
  m.def("limit_norms", &limit_norms, "rows"_a.noconvert(), "dimension"_a, "most"_a);

  nb::class_<PartialGradients>(m, "PartialGradients")
      .def(nb::init<std::size_t>(), "dimension"_a)
      .def("inspect", &partials_inspect, "ids"_a, "targets"_a, "contributors"_a, "steps"_a, "worker"_a)
      .def("add", &partials_add, "ids"_a, "targets"_a, "contributors"_a, "steps"_a, "gradients"_a, "worker"_a)
      .def("sum", &partials_sum, "ids"_a, "gradients"_a, "worker"_a)
      .def("discard", &partials_discard, "ids"_a)
      .def("splits", &partials_splits, "ids"_a)
      .def("__len__", locked(&PartialGradients::gradients))
      .def_prop_ro("memory_bytes", locked(&PartialGradients::memory_bytes));

  bind_exchange(m);
  bind_records(m);
  bind_tables(m);
}

}  // namespace esd::rows
