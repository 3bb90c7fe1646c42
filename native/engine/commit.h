// One iteration of the state machine (docs/semantics.md): update pushes, evictions, pulls, training.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/batch/trainers.h"
#include "engine/engine.h"
#include "engine/plan/replacement.h"
#include "engine/plan/resolve.h"
#include "engine/plan/worker_lists.h"

namespace esd {

class Commit {
 public:
  explicit Commit(Engine& engine);

  IterationPlans run(const std::int32_t* assignment, Arena&& arena);

 private:
  void check_capacities() const;
  void serve(unsigned worker, IterationPlans& plans);
  void train(const IterationPlans& plans);
  void choose_hot_rows();

  Engine& engine_;
  Trainers trainers_;
  Replacement replacement_;
  std::vector<WorkerTurn> turns_;      // by worker
  std::vector<Slots> discarded_late_;  // by worker: slots of forgotten rows that the previous iteration trains
  std::vector<const std::uint32_t*> next_slots_;  // by worker: the slot of the next row that it needs
  std::vector<std::uint32_t> place_in_needs_;     // scratch space
};

}  // namespace esd
