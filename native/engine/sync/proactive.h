// Pushing ahead (FRUGAL §3.3): on demand, and before that while a link is idle, what is read next first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/sync/flush_queue.h"
#include "engine/sync/on_demand.h"

namespace esd {

// Its figures are, by worker, how many of the update pushes nothing needs yet.
class Proactive : public OnDemand {
 public:
  struct Options {};

  Proactive(State& state, Options) : OnDemand(state), queue_(state.workers()) {}
  std::unique_ptr<Sync> clone() const override { return std::make_unique<Proactive>(*this); }

  // Throws std::invalid_argument when the iteration is not one of the next FlushQueue::kSteps - 1.
  void look_ahead(const std::uint64_t* ids, std::size_t count, std::uint32_t iteration) override;
  void begin(const std::int64_t* limits, IterationPlans& plans) override;
  void after(IterationPlans& plans) override;
  void flush() override;
  void restore(SavedSync&& saved) override;
  bool remembers(RowNumber row) const override { return queue_.waits(row); }
  std::size_t memory_bytes() const override { return queue_.memory_bytes(); }

 private:
  void give_away(unsigned worker, RowNumber number);

  FlushQueue queue_;
  std::vector<RowNumber> trained_;  // by the last iteration
};

}  // namespace esd
