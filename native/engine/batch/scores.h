// What a mechanism needs to decide: the expected transmission costs of a prepared batch, its affinities to the workers,
// and the room that it needs in their caches. All results are int32 [k, workers].
#pragma once

#include <cstdint>
#include <vector>

#include "engine/batch/prepared_batch.h"
#include "engine/rows/copy_directory.h"

namespace esd {

// ESD paper, Alg. 1: out[i, j] is what training sample i on worker j is expected to cost. `link_costs` [workers] are of
// a row of size 1. With `pushed_next` the push that follows each training is a part of it.
void expected_costs(const PreparedBatch& batch, unsigned workers, const std::int32_t* link_costs, bool pushed_next,
                    std::int32_t* out);

// Which copies Herald's score counts.
enum class AtHand {
  kLatest,   // the latest ones (the paper's text)
  kTrained,  // also those whose worker took part in the row's last training (the released scheduler)
};

// Herald's score: out[i, j] counts the distinct ids of sample i that worker j has at hand.
void affinities(const PreparedBatch& batch, unsigned workers, AtHand at_hand, std::int32_t* out);

// The same over some fields only; an id that a sample repeats counts in the first of its fields.
void affinities(const PreparedBatch& batch, unsigned workers, AtHand at_hand, const std::vector<std::uint32_t>& fields,
                std::int32_t* out);

// out[i, j] is the size of the distinct rows of sample i that worker j does not cache.
void room_needed(const PreparedBatch& batch, const CopyDirectory& directory, unsigned workers, std::int32_t* out);

}  // namespace esd
