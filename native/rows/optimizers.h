// Optimizers, which take one step on a block of rows in place, and the limit of the rows' norms after it.
//
// A row is [D values | state]; the block has r rows, and one gradient of D values per row. The formulas are those of
// services/domain/tables.py, in float32 as torch computes them.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "common/hot.h"

namespace esd::rows {

ESD_HOT static void sgd(float* rows, const float* gradients, std::size_t r, std::size_t dimension, float rate) {
  for (std::size_t i = 0; i < r * dimension; ++i) rows[i] -= rate * gradients[i];
}

// The state is one float: the gradient's mean square, summed over the steps.
ESD_HOT static void rowwise_adagrad(float* rows, const float* gradients, std::size_t r, std::size_t dimension,
                                    float rate, float epsilon) {
  for (std::size_t i = 0; i < r; ++i) {
    float* row = rows + i * (dimension + 1);
    const float* g = gradients + i * dimension;
    double squares = 0.0;
    for (std::size_t c = 0; c < dimension; ++c) squares += static_cast<double>(g[c]) * g[c];
    float& state = row[dimension];
    state += static_cast<float>(squares / static_cast<double>(dimension));
    const float step = rate / (std::sqrt(state) + epsilon);
    for (std::size_t c = 0; c < dimension; ++c) row[c] -= step * g[c];
  }
}

// Scales the D values of a row down to the Euclidean norm `most` if theirs is larger. 0 stands for no limit.
ESD_HOT static void limit_norm(float* values, std::size_t dimension, double most) {
  if (most == 0.0) return;
  double squares = 0.0;
  for (std::size_t c = 0; c < dimension; ++c) squares += static_cast<double>(values[c]) * values[c];
  const double norm = std::sqrt(squares);
  if (!(norm > most)) return;
  const auto factor = static_cast<float>(most / norm);
  for (std::size_t c = 0; c < dimension; ++c) values[c] *= factor;
}

struct AdamConstants {
  double rate, epsilon, beta1, beta2;
};

// The state is the first moments [D] and the second moments [D]. steps[i] is the global step that made gradient i.
ESD_HOT static void adam(float* rows, const float* gradients, const std::int64_t* steps, std::size_t r,
                         std::size_t dimension, const AdamConstants& constants) {
  const auto fresh1 = static_cast<float>(1.0 - constants.beta1);
  const auto fresh2 = static_cast<float>(1.0 - constants.beta2);
  const auto epsilon = static_cast<float>(constants.epsilon);
  for (std::size_t i = 0; i < r; ++i) {
    const auto t = static_cast<double>(steps[i]);
    const auto step = static_cast<float>(constants.rate * std::sqrt(1.0 - std::pow(constants.beta2, t)) /
                                         (1.0 - std::pow(constants.beta1, t)));
    float* w = rows + i * 3 * dimension;
    float* m = w + dimension;
    float* v = m + dimension;
    const float* g = gradients + i * dimension;
    for (std::size_t c = 0; c < dimension; ++c) {
      m[c] += (g[c] - m[c]) * fresh1;
      v[c] += (g[c] * g[c] - v[c]) * fresh2;
      w[c] -= step * (m[c] / (std::sqrt(v[c]) + epsilon));
    }
  }
}

}  // namespace esd::rows
