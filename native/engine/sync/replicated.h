// Replicated rows (FAE, SCARS): on demand, but for the hottest rows, which all workers train and nothing pushes.
//
// They join when they are trained, all workers train them from then on, and they leave when others are hotter
// (replication.h). Scores of a batch know them as clean, at hand at every worker.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/sync/on_demand.h"
#include "engine/sync/replication.h"

namespace esd {

// Its figures are, by table, how many replicated rows the iteration trains.
class Replicated : public OnDemand {
 public:
  struct Options {
    std::uint64_t room = 0;             // of each cache, in units of row size; at least 1
    WorkerSet workers{};                // that replicate; empty: all
    std::uint64_t seed = 0;             // decides in which iterations the rows are chosen
    std::uint32_t first_iteration = 0;  // of the stream
  };

  // Throws std::invalid_argument when the rows leave no room in a cache, or a worker does not exist.
  Replicated(State& state, Options options) : OnDemand(state), replication_(checked(state, options)) {}
  std::unique_ptr<Sync> clone() const override { return std::make_unique<Replicated>(*this); }

  void extend_trainers() override;
  std::uint64_t pinned_room() const override;
  void begin(const std::int64_t* limits, IterationPlans& plans) override;
  void write_pushes(unsigned worker, WorkerPlan& plan, Arena& arena) override;
  void use(CacheMirror& cache, const WorkerPlan& plan, const Arena& arena) override;
  void moved(IterationPlans& plans) override;
  void after(IterationPlans& plans) override;
  void flush() override;
  void forget(const std::vector<RowNumber>& rows) override;
  bool remembers(RowNumber row) const override { return replication_.listed(row); }
  SavedSync save() const override;
  void restore(SavedSync&& saved) override;
  std::size_t memory_bytes() const override { return replication_.memory_bytes(); }

 private:
  static Replication checked(const State& state, const Options& options);
  bool unpushed(const RowState& row, unsigned worker) const override;
  void mark(unsigned worker, WorkerPlan& plan, Arena& arena);

  Replication replication_;
  std::vector<std::pair<BatchIndex, WorkerSet>> idle_;  // replicated rows, with workers whose samples use none of them
  Slots unpinned_;                                      // scratch space
};

}  // namespace esd
