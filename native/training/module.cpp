// The Python module esd.native.training, whose interface is documented in esd/native/training.pyi: the update of a
// worker's cached rows, in place and without the GIL.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/arrays.h"
#include "rows/optimizers.h"
#include "training/cached_rows.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace esd::training {
namespace {

using Cache = InOut2<float>;
using Gathered = std::optional<InOut2<float>>;

Trained checked(const Cache& cache, std::size_t floats_per_value, std::size_t more, const In1<std::uint32_t>& slots,
                const InSets& contributors, const In1<std::uint32_t>& inverse, const In2<float>& gradients,
                const InOut2<float>& shared) {
  const WorkerSets trainers = sets_of(contributors);
  require(trainers.size == slots.size(), "slots and contributors differ in length");
  require(gradients.shape(0) == inverse.size(), "there is not one gradient per id");
  require(cache.shape(1) == floats_per_value * gradients.shape(1) + more, "the slots have not this optimizer's width");
  require(within(slots.data(), slots.size(), cache.shape(0)), "a slot is beyond the cache");
  require(within(inverse.data(), inverse.size(), slots.size()), "a sample uses a row that is not among the distinct");
  std::size_t replicated = 0;
  for (std::size_t i = 0; i < trainers.size; ++i) replicated += trainers[i].empty();
  require(shared.shape(0) == replicated, "there is not one shared gradient per replicated row");
  require(shared.shape(1) == gradients.shape(1), "shared gradients have another dimension");
  return {slots.data(),     trainers,       slots.size(),       inverse.data(),
          gradients.data(), inverse.size(), gradients.shape(1), shared.data()};
}

// Trains rows with `update` and limits their norms; with gathered gradients, as rows of which each worker has its own
// copy.
template <typename Update>
void train(const Cache& cache, const Gathered& gathered, const Trained& trained, double max_norm,
           const Update& update) {
  const auto limited = [&](float* row, const float* gradient) {
    update(row, gradient);
    rows::limit_norm(row, trained.dimension, max_norm);
  };
  if (gathered) {
    require(gathered->shape(0) == cache.shape(0) && gathered->shape(1) == trained.dimension,
            "there is not one gathered gradient per slot");
  }
  const nb::gil_scoped_release release;
  if (gathered) {
    train_gathering(cache.data(), cache.shape(1), gathered->data(), trained, limited);
  } else {
    train_cached(cache.data(), cache.shape(1), trained, limited);
  }
}

void sgd(Cache cache, In1<std::uint32_t> slots, const InSets& contributors, In1<std::uint32_t> inverse,
         In2<float> gradients, InOut2<float> shared, float rate, const Gathered& gathered, double max_norm) {
  const Trained trained = checked(cache, 1, 0, slots, contributors, inverse, gradients, shared);
  train(cache, gathered, trained, max_norm,
        [&](float* row, const float* gradient) { rows::sgd(row, gradient, 1, trained.dimension, rate); });
}

void rowwise_adagrad(Cache cache, In1<std::uint32_t> slots, const InSets& contributors, In1<std::uint32_t> inverse,
                     In2<float> gradients, InOut2<float> shared, float rate, float epsilon, const Gathered& gathered,
                     double max_norm) {
  const Trained trained = checked(cache, 1, 1, slots, contributors, inverse, gradients, shared);
  train(cache, gathered, trained, max_norm, [&](float* row, const float* gradient) {
    rows::rowwise_adagrad(row, gradient, 1, trained.dimension, rate, epsilon);
  });
}

void adam(Cache cache, In1<std::uint32_t> slots, const InSets& contributors, In1<std::uint32_t> inverse,
          In2<float> gradients, InOut2<float> shared, std::int64_t step, double rate, double epsilon, double beta1,
          double beta2, const Gathered& gathered, double max_norm) {
  const Trained trained = checked(cache, 3, 0, slots, contributors, inverse, gradients, shared);
  train(cache, gathered, trained, max_norm, [&](float* row, const float* gradient) {
    rows::adam(row, gradient, &step, 1, trained.dimension, {rate, epsilon, beta1, beta2});
  });
}

}  // namespace

NB_MODULE(training, m) {
  m.def("sgd", &sgd, "cache"_a.noconvert(), "slots"_a, "contributors"_a, "inverse"_a, "gradients"_a,
        "shared"_a.noconvert(), "learning_rate"_a, "gathered"_a.noconvert() = nb::none(), "max_norm"_a = 0.0);
  m.def("rowwise_adagrad", &rowwise_adagrad, "cache"_a.noconvert(), "slots"_a, "contributors"_a, "inverse"_a,
        "gradients"_a, "shared"_a.noconvert(), "learning_rate"_a, "epsilon"_a, "gathered"_a.noconvert() = nb::none(),
        "max_norm"_a = 0.0);
  m.def("adam", &adam, "cache"_a.noconvert(), "slots"_a, "contributors"_a, "inverse"_a, "gradients"_a,
        "shared"_a.noconvert(), "step"_a, "learning_rate"_a, "epsilon"_a, "beta1"_a, "beta2"_a,
        "gathered"_a.noconvert() = nb::none(), "max_norm"_a = 0.0);
}

}  // namespace esd::training
