#include "engine/engine.h"

#include <algorithm>
#include <numeric>

#include "engine/batch/scores.h"
#include "engine/commit.h"

namespace esd {

Engine::Engine(std::vector<std::uint32_t> cache_sizes, std::string policy, std::vector<std::uint32_t> field_sizes,
               std::uint64_t max_rows)
    : cache_sizes_(std::move(cache_sizes)),
      policy_(std::move(policy)),
      sizes_(std::move(field_sizes)),
      row_limit_(max_rows),
      caches_(make_caches()),
      directory_(workers()),
      commit_(std::make_unique<Commit>(*this)) {}

Engine::~Engine() = default;

std::vector<std::unique_ptr<CacheMirror>> Engine::make_caches() const {
  std::vector<std::unique_ptr<CacheMirror>> caches;
  for (const std::uint32_t size : cache_sizes_) {
    caches.push_back(std::make_unique<CacheMirror>(size, policy_, RowTraits{sizes_, hot_rows_}));
  }
  return caches;
}

void Engine::prepare(const std::uint64_t* ids, std::size_t samples, std::size_t fields) {
  sizes_.check(fields);
  check_in();
  preparer_.prepare(ids, samples, fields, index_, batch_);
  prepared_ = true;
  sizes_.describe(batch_);
}

void Engine::check_out() {
  index_.check_out(batch_.rows, batch_.states);
  prepared_ = true;
}

void Engine::check_in() {
  if (prepared_) index_.check_in(batch_.rows, batch_.states);
  prepared_ = false;
}

const PreparedBatch& Engine::batch() const {
  if (!prepared_) throw std::logic_error("no batch is prepared; call prepare first");
  return batch_;
}

void Engine::check_link_costs(const std::int32_t* link_costs) const {
  const std::int64_t highest = *std::max_element(link_costs, link_costs + workers());
  if (*std::min_element(link_costs, link_costs + workers()) < 0) {
    throw std::invalid_argument("a link cost is negative");
  }
  if (2 * highest * static_cast<std::int64_t>(batch().sample_size) > INT32_MAX) {
    throw std::invalid_argument("link cost " + std::to_string(highest) + " is too large for " +
                                std::to_string(batch().fields) +
                                " fields: 2 * cost * the sum of the sizes of their "
                                "rows must be below 2^31");
  }
}

void Engine::costs(const std::int32_t* link_costs, std::int32_t* out) const {
  check_link_costs(link_costs);
  (batch().sizes.empty() ? expected_costs : sized_costs)(batch(), workers(), link_costs, out);
}

void Engine::check_limits(const JointRequest& request) const {
  for (unsigned j = 0; j < workers(); ++j) {
    const std::int32_t least = request.limits->least[j], most = request.limits->most[j];
    if (least < 0 || request.capacities[j] < least || request.capacities[j] > most) {
      throw std::invalid_argument("capacity of worker " + std::to_string(j) + " is " +
                                  std::to_string(request.capacities[j]) + ", its limits are " + std::to_string(least) +
                                  ".." + std::to_string(most));
    }
    if (!(request.limits->sample_costs[j] >= 0 && request.limits->sample_costs[j] < 1e300)) {
      throw std::invalid_argument("the sample cost of worker " + std::to_string(j) + " must be finite, not negative");
    }
  }
}

JointResult Engine::joint(const JointRequest& request) const {
  check_link_costs(request.link_costs);
  std::int64_t room = 0;
  for (unsigned j = 0; j < workers(); ++j) {
    if (request.capacities[j] < 0) {
      throw std::invalid_argument("capacity of worker " + std::to_string(j) + " is " +
                                  std::to_string(request.capacities[j]) + ", it must not be negative");
    }
    room += request.capacities[j];
  }
  const std::int64_t later = std::accumulate(request.following.begin(), request.following.end(), std::int64_t{0});
  if (room + later != static_cast<std::int64_t>(batch().samples) || (room == 0 && later > 0)) {
    throw std::invalid_argument("capacities sum to " + std::to_string(room) + ", the batch has " +
                                std::to_string(batch().samples) + " samples, " + std::to_string(later) +
                                " of them in batches that follow");
  }
  if (request.limits) check_limits(request);
  return joint_search(batch(), reuse_, request);
}

void Engine::affinity(std::int32_t* out) const { affinities(batch(), workers(), out); }

void Engine::affinity(const std::vector<std::uint32_t>& fields, std::int32_t* out) const {
  for (const std::uint32_t field : fields) {
    if (field < batch().fields) continue;
    throw std::invalid_argument("field " + std::to_string(field) + " is chosen, the batch has " +
                                std::to_string(batch().fields));
  }
  affinities(batch(), workers(), fields, out);
}

void Engine::room_needed(std::int32_t* out) const {
  (batch().sizes.empty() ? slots_needed : sized_room_needed)(batch(), directory_, workers(), out);
}

IterationPlans Engine::commit(const std::int32_t* assignment, Arena&& arena) {
  batch();  // refuses when none is prepared
  return commit_->run(assignment, std::move(arena));
}

std::size_t Engine::cache_bytes() const {
  std::size_t bytes = directory_.memory_bytes();
  for (const auto& cache : caches_) bytes += cache->memory_bytes();
  return bytes;
}

std::size_t Engine::memory_bytes() const {
  return index_.memory_bytes() + sizes_.memory_bytes() + hot_rows_.memory_bytes() + row_limit_.memory_bytes() +
         cache_bytes() + preparer_.memory_bytes() + batch_.memory_bytes();
}

}  // namespace esd
