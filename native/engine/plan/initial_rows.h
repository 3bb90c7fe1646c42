// The rows of ids that are not admitted, in the plans of the workers whose samples have them.
#pragma once

#include "engine/batch/admission.h"
#include "engine/plan/plan.h"

namespace esd {

// Adds to each worker's plan, which the engine made of the admitted ids alone, the other ids of its samples: they follow
// the plan's unique ids, and the plan's inverse gets an entry for each of their occurrences.
void add_initial_rows(const InitialIds& initial, IterationPlans& plans);

}  // namespace esd
