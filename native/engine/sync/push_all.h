// Pushing all: every row that an iteration trains is pushed in the next one, needed or not (vanilla of Herald §3.1).
#pragma once

#include <memory>
#include <vector>

#include "engine/sync/on_demand.h"

namespace esd {

class PushAll : public OnDemand {
 public:
  struct Options {};

  PushAll(State& state, Options) : OnDemand(state) {}
  std::unique_ptr<Sync> clone() const override { return std::make_unique<PushAll>(*this); }

  Scoring scoring() const override { return {true, true}; }
  void after(IterationPlans& plans) override;
  void flush() override {}  // what is owed is owed already

 protected:
  // The workers owe what the iteration has trained, each in the order of ids.
  void owe_trained(const IterationPlans& plans);
};

}  // namespace esd
