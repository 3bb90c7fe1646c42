// A worker's plan as it travels: the message AttendResponse of protos/dispatcher.proto with an IterationPlan in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/plan/plan.h"

namespace esd::wire {

// The parts of a plan that are not the engine's columns.
struct PlanContext {
  std::uint64_t epoch;
  std::size_t batch_size;           // k
  const float* dense;               // [k, dense_features]
  std::size_t dense_features;       // d
  const float* labels;              // [k, labels_per_sample]
  std::size_t labels_per_sample;    // L
  const std::uint32_t* lengths;     // [k, fields]; null when every field of every sample has one id
  const float* weights;             // [k], null when there are none
  const std::uint64_t* groups;      // [k], null when there are none
  const std::uint64_t* references;  // [k], null when dense features and labels travel; else d = L = 0
  const std::uint32_t* chunks;      // [c], of the lists of negatives, which follow the k samples in all columns above
  const std::uint32_t* roles;       // [workers], of the dense parameters; null when every worker trains them
};

// Returns the plan of one worker as protobuf writes it: fields ascend, and those at their default are left out. `arena`
// has the columns: that of the plans, wherever it has moved to.
std::string plan_message(const IterationPlans& plans, const Arena& arena, std::size_t worker,
                         const PlanContext& context);

}  // namespace esd::wire
