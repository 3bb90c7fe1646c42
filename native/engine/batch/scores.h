// What a mechanism needs to decide: expected transmission costs and affinities of a prepared batch.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/batch/prepared_batch.h"
#include "engine/rows/copy_directory.h"

namespace esd {

// ESD paper, Alg. 1: out[i, j] is what training sample i on worker j is expected to cost, int32 [k, workers].
void expected_costs(const PreparedBatch& batch, unsigned workers, const std::int32_t* link_costs, std::int32_t* out);

// Herald's score: out[i, j] counts the distinct ids of sample i that worker j has at hand, int32 [k, workers].
void affinities(const PreparedBatch& batch, unsigned workers, std::int32_t* out);

// The same over some fields only; an id that a sample repeats counts in the first of its fields.
void affinities(const PreparedBatch& batch, unsigned workers, const std::vector<std::uint32_t>& fields,
                std::int32_t* out);

// out[i, j] counts the distinct ids of sample i that worker j does not cache, int32 [k, workers].
void slots_needed(const PreparedBatch& batch, const CopyDirectory& directory, unsigned workers, std::int32_t* out);

// As expected_costs and slots_needed, each id times the size of its row.
void sized_costs(const PreparedBatch& batch, unsigned workers, const std::int32_t* link_costs, std::int32_t* out);
void sized_room_needed(const PreparedBatch& batch, const CopyDirectory& directory, unsigned workers, std::int32_t* out);

}  // namespace esd
