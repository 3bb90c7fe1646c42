// On demand (ESD §4): a row is pushed when another worker needs it, or when it leaves the cache that owns it.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "engine/sync/sync.h"

namespace esd {

class OnDemand : public Sync {
 public:
  struct Options {
    bool direct = false;  // a row that one other worker alone trains next goes straight from its owner to that worker
  };

  OnDemand(State& state, Options options) : Sync(state), direct_(options.direct) {}
  std::unique_ptr<Sync> clone() const override { return std::make_unique<OnDemand>(*this); }

  void write_pushes(unsigned worker, WorkerPlan& plan, Arena& arena) override;
  void moved(IterationPlans& plans) override;
  void flush() override;

 protected:
  explicit OnDemand(State& state) : Sync(state) {}

  // Whether a worker that holds a row must push its copy in a flush.
  virtual bool unpushed(const RowState& row, unsigned worker) const;

 private:
  bool direct_ = false;
};

}  // namespace esd
