#include <stdexcept>

#include "engine/policy.h"
#include "engine/policy_emark.h"
#include "engine/policy_lfu.h"
#include "engine/policy_lru.h"

namespace esd {

std::unique_ptr<Policy> make_policy(const std::string& name, Copies& copies) {
  if (name == "emark") return std::make_unique<EmarkPolicy>(copies);
  if (name == "lru") return std::make_unique<LruPolicy>(copies);
  if (name == "lfu") return std::make_unique<LfuPolicy>(copies);
  throw std::invalid_argument("cache policy '" + name + "' is unknown; there are emark, lru and lfu");
}

}  // namespace esd
