#include <stdexcept>

#include "engine/policy.h"
#include "engine/policy_emark.h"
#include "engine/policy_ordered.h"
#include "engine/policy_static.h"
#include "engine/sized_queues.h"

namespace esd {

std::unique_ptr<Policy> make_policy(const std::string& name, Copies& copies, const RowTraits& rows) {
  if (name == "emark") return std::make_unique<EmarkPolicy<FrequencyQueues>>(copies, FrequencyQueues());
  if (name == "emark-size") return std::make_unique<EmarkPolicy<SizedQueues>>(copies, SizedQueues(rows.sizes));
  if (name == "lru") return std::make_unique<LruPolicy>(copies);
  if (name == "lfu") return std::make_unique<LfuPolicy>(copies);
  if (name == kStatic) return std::make_unique<StaticPolicy>(copies, rows.hot);
  throw std::invalid_argument("cache policy '" + name +
                              "' is unknown; there are emark, emark-size, lru, lfu and static");
}

}  // namespace esd
