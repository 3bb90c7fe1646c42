// The pass by row of an iteration.
#pragma once

#include <vector>

#include "engine/batch/prepared_batch.h"
#include "engine/batch/trainers.h"
#include "engine/plan/worker_lists.h"
#include "engine/rows/copy_directory.h"

namespace esd {

// Tells every worker, [n], which rows it needs and where it has them, what it pushes because somebody else needs it, and
// which of its copies the iteration outdates.
void resolve(const PreparedBatch& batch, const Trainers& trainers, const CopyDirectory& directory,
             std::uint32_t iteration, std::vector<WorkerTurn>& turns);

}  // namespace esd
