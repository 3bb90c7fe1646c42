// The update of a worker's embedding rows after a backward pass, in the slots of its cache.
//
// The backward pass yields a gradient for every id of every sample; the gradients of a row are added up in the order of
// the samples, so that the sum depends on nothing else. The use of the sum depends on the workers that train the row.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/hot.h"
#include "common/worker_sets.h"

namespace esd::training {

// The distinct rows of a micro-batch, and the gradients that its samples give them.
struct Trained {
  const std::uint32_t* slots;    // [u], of each distinct row
  WorkerSets contributors;       // [u], the workers that train it; none: it is replicated
  std::size_t rows;              // u
  const std::uint32_t* inverse;  // [lookups], the row of each id, sample by sample
  const float* gradients;        // [lookups, D]
  std::size_t lookups;           // N
  std::size_t dimension;         // D
  float* shared;                 // [h, D], for the gradients of the replicated rows
};

inline bool within(const std::uint32_t* values, std::size_t n, std::size_t limit) {
  return std::all_of(values, values + n, [limit](std::uint32_t value) { return value < limit; });
}

// Adds up the gradients of each row: `sums` [u, D], which holds zeros.
ESD_HOT static void add_up(const Trained& trained, float* sums) {
  const std::size_t d = trained.dimension;
  for (std::size_t i = 0; i < trained.lookups; ++i) {
    float* sum = sums + trained.inverse[i] * d;
    const float* gradient = trained.gradients + i * d;
    for (std::size_t c = 0; c < d; ++c) sum[c] += gradient[c];
  }
}

// Trains every row with `update(row, gradient)`, and adds the gradient to the row's slot of `gathered` [C, D].
template <typename Update>
void train_gathering(float* cache, std::size_t width, float* gathered, const Trained& trained, const Update& update) {
  const std::size_t d = trained.dimension;
  std::vector<float> sums(trained.rows * d, 0.0F);
  add_up(trained, sums.data());
  for (std::size_t i = 0; i < trained.rows; ++i) {
    const float* sum = sums.data() + i * d;
    float* all = gathered + trained.slots[i] * d;
    update(cache + trained.slots[i] * width, sum);
    for (std::size_t c = 0; c < d; ++c) all[c] += sum[c];
  }
}

// Trains the rows of this worker alone with `update(row, gradient)`. For a row that other workers train, too, the
// slot's first D floats receive the partial gradient. The gradient of a replicated row goes to `shared`, and the row
// stays unchanged.
template <typename Update>
void train_cached(float* cache, std::size_t width, const Trained& trained, const Update& update) {
  const std::size_t d = trained.dimension;
  std::vector<float> sums(trained.rows * d, 0.0F);
  add_up(trained, sums.data());
  float* shared = trained.shared;
  for (std::size_t i = 0; i < trained.rows; ++i) {
    float* row = cache + trained.slots[i] * width;
    const float* sum = sums.data() + i * d;
    const WideWorkerSet workers = trained.contributors[i];
    if (workers.empty()) {
      shared = std::copy_n(sum, d, shared);
    } else if (workers.several()) {
      std::copy_n(sum, d, row);
    } else {
      update(row, sum);
    }
  }
}

}  // namespace esd::training
