// A way to synchronise: on demand, and every few iterations everything that was trained is pushed.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>

#include "engine/sync/on_demand.h"

namespace esd {

class Periodic : public OnDemand {
 public:
  struct Options {
    std::uint32_t every = 1;  // iterations from one push of everything to the next
  };

  Periodic(State& state, Options options) : OnDemand(state), every_(options.every) {
    if (every_ == 0) throw std::invalid_argument("everything is to be pushed every 0 iterations, the least is 1");
  }
  std::unique_ptr<Sync> clone() const override { return std::make_unique<Periodic>(*this); }

  // What a worker owes when an iteration is over is pushed with its next plan.
  void after(IterationPlans&) override {
    if (state_.iteration % every_ == 0) flush();
  }

 private:
  std::uint32_t every_;
};

}  // namespace esd
