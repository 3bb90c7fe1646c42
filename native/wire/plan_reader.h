// The plans in a message of the dispatcher (protos/dispatcher.proto, AttendResponse), read into columns. plan_writer.h is
// the other side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/worker_sets.h"
#include "wire/fields.h"

namespace esd::wire {

// Upper bounds on a plan: features of a sample, ids of one feature, ids of all samples, workers of a job.
struct PlanLimits {
  std::uint64_t features, length, ids, workers;
};

struct RowColumns {
  std::vector<std::uint64_t> ids;
  std::vector<std::uint32_t> slots;
  std::vector<std::int64_t> versions;
  std::uint64_t early = 0;
};

// Sets of workers, in one word each, or in two.
struct SetColumn {
  std::vector<std::uint64_t> words;
  std::size_t rows = 0;

  WorkerSets sets() const { return {words.data(), rows, words.size() == rows ? std::size_t{1} : std::size_t{2}}; }
};

struct GradientColumns {
  RowColumns rows;
  SetColumn contributors;
  std::vector<std::int64_t> steps;
};

struct DirectColumns {
  std::vector<std::uint32_t> places, peers;
};

// The columns have the names of services/domain/plans.py, IterationPlan.
struct ReadPlan {
  std::uint64_t epoch = 0, iteration = 0, batch_size = 0;
  std::int64_t forgotten_below = 0;
  RowColumns update_rows, evict_rows, drops, pulls, discards;
  GradientColumns update_gradients, evict_gradients;
  DirectColumns direct_pushes, direct_pulls;
  std::size_t samples = 0, fields = 0, dense_features = 0, labels_per_sample = 0, lists = 0;
  RowColumns unique;
  SetColumn unique_contributors;
  std::vector<std::uint64_t> forgotten, groups, references, initial_ids;
  std::vector<std::uint32_t> positions, inverse, reduced;
  std::vector<std::uint32_t> lengths;
  std::vector<float> dense, labels, weights;
  bool has_lengths = false, has_weights = false, has_groups = false, has_references = false;
  std::string trace_parent;
  std::uint64_t dense_role = 0;
};

struct ReadPlans {
  std::vector<ReadPlan> plans;
  std::string rest;  // the message without its plans
};

// Throws std::invalid_argument for a message of unusual form.
ReadPlans read_plans(Bytes message, const PlanLimits& limits);

}  // namespace esd::wire
