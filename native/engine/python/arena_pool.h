// Arenas that come back when Python drops the plans, since fresh memory would cost a page fault per 4 KiB and
// iteration.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/plan/plan.h"

namespace esd {

class ArenaPool {
 public:
  Arena take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (spare_.empty()) return {};
    Arena arena = std::move(spare_.back());
    spare_.pop_back();
    return arena;
  }

  void give(Arena&& arena) {
    arena.clear();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (spare_.size() < kSpare) spare_.push_back(std::move(arena));
  }

 private:
  static constexpr std::size_t kSpare = 4;
  std::mutex mutex_;
  std::vector<Arena> spare_;
};

// An arena in use, which the last owner gives back. It may outlive the engine.
class ArenaLease {
 public:
  ArenaLease(std::shared_ptr<ArenaPool> pool, Arena&& arena) : arena(std::move(arena)), pool_(std::move(pool)) {}
  ArenaLease(const ArenaLease&) = delete;
  ArenaLease& operator=(const ArenaLease&) = delete;
  ~ArenaLease() { pool_->give(std::move(arena)); }

  Arena arena;

 private:
  std::shared_ptr<ArenaPool> pool_;
};

}  // namespace esd
