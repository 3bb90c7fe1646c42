// The pass over the batch's rows that tells every worker what to do with them.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/batch/prepared_batch.h"
#include "engine/batch/trainers.h"
#include "engine/plan/worker_lists.h"
#include "engine/rows/copy_directory.h"

namespace esd {

// Fills the lists of every worker, [n]: which rows it needs in `iteration` and where it caches them, what it pushes
// because somebody else needs it, and which of its copies the iteration outdates.
void resolve(const PreparedBatch& batch, const Trainers& trainers, const CopyDirectory& directory,
             std::uint32_t iteration, std::vector<WorkerLists>& lists);

}  // namespace esd
