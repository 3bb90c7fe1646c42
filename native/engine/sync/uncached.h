// No cache: every row that an iteration uses is pulled before it and pushed after it (the uncached systems of SCARS and
// FRUGAL).
//
// A worker's cache is the room of its iteration's rows. A copy that stays there is outdated: its slot is taken first.
#pragma once

#include <memory>

#include "engine/sync/push_all.h"

namespace esd {

class Uncached : public PushAll {
 public:
  Uncached(State& state, Options options) : PushAll(state, options) {}
  std::unique_ptr<Sync> clone() const override { return std::make_unique<Uncached>(*this); }

  void after(IterationPlans& plans) override;
  void restore(SavedSync&& saved) override;

 private:
  void hold_nothing(RowNumber number);
};

}  // namespace esd
