// Samples at workers, what they cost together, and what placing one more sample would add.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/hot.h"
#include "engine/joint/instance.h"
#include "engine/joint/shared_row.h"
#include "engine/rows/index_types.h"

namespace esd {

namespace joint {

// costs [count, Width]: what each of `samples` would add at each worker. `added` [rows, Width] keeps the rows' part
// from call to call.
template <unsigned Width>
ESD_HOT void price_samples(JointInstance<Width>& instance, const SampleIndex* samples, std::size_t count,
                           std::int32_t* added, std::int32_t* costs) {
  for (std::size_t s = 0; s < count; ++s, costs += Width) {
    const SampleIndex i = samples[s];
    alignas(64) std::int32_t sum[Width];
    for (unsigned j = 0; j < Width; ++j) sum[j] = instance.own(i)[j];
    for (std::uint32_t at = instance.shared_begins[i]; at < instance.shared_begins[i + 1]; ++at) {
      SharedRow& row = instance.rows[instance.shared[at]];
      std::int32_t* row_costs = added + instance.shared[at] * std::size_t{Width};
      if (row.priced_for != row.trainers) {
        added_costs(row, instance.links, row_costs);
        row.priced_for = row.trainers;
      }
      for (unsigned j = 0; j < Width; ++j) sum[j] += row_costs[j];
    }
    for (unsigned j = 0; j < Width; ++j) costs[j] = sum[j];
  }
}

}  // namespace joint

template <unsigned Width>
class JointPlacement {
 public:
  explicit JointPlacement(JointInstance<Width>& instance)
      : instance_(instance),
        worker_of_(instance.samples),
        users_(instance.rows.size() * Width),
        added_(instance.rows.size() * Width),
        placed_(instance.rows.size()) {}

  // Puts a sample that is nowhere at `worker`.
  void put(SampleIndex sample, unsigned worker) {
    worker_of_[sample] = static_cast<std::int32_t>(worker);
    own_cost_ += instance_.own(sample)[worker];
    const WorkerSet only = WorkerSet::only(static_cast<int>(worker));
    for_each_shared(sample, worker, [only](SharedRow& row, std::uint32_t& users) {
      ++users;
      row.trainers |= only;
    });
  }

  // Takes a sample from its worker, the exact inverse. Returns the worker.
  unsigned take(SampleIndex sample) {
    const auto worker = static_cast<unsigned>(worker_of_[sample]);
    own_cost_ -= instance_.own(sample)[worker];
    const WorkerSet only = WorkerSet::only(static_cast<int>(worker));
    for_each_shared(sample, worker, [only](SharedRow& row, std::uint32_t& users) {
      row.trainers -= only.when(--users == 0);  // no branch: it can hardly be predicted
    });
    return worker;
  }

  // costs [samples.size(), Width]: what each of the samples, which are nowhere, would add at each worker.
  void price(const std::vector<SampleIndex>& samples, std::vector<std::int32_t>& costs) {
    costs.resize(samples.size() * Width);
    joint::price_samples(instance_, samples.data(), samples.size(), added_.data(), costs.data());
  }

  const std::vector<std::int32_t>& assignment() const { return worker_of_; }

  // The cost of all samples that are somewhere, in fixed point. It is asked for once samples have been taken and put, of
  // which most rows see several and many end up where they were.
  std::int64_t cost() {
    for (std::size_t x = 0; x < placed_.size(); ++x) {
      const SharedRow& row = instance_.rows[x];
      if (placed_[x].trainers == row.trainers) continue;
      const std::int64_t cost = placed_cost(row, instance_.links);
      shared_cost_ += cost - placed_[x].cost;
      placed_[x] = {row.trainers, cost};
    }
    return own_cost_ + shared_cost_;
  }

 private:
  // What a row costs at some trainers.
  struct Placed {
    WorkerSet trainers;
    std::int64_t cost;
  };

  // Calls `visit(row, users)` for every shared row of a sample, with its users at the worker.
  template <typename Visit>
  [[gnu::always_inline]] void for_each_shared(SampleIndex sample, unsigned worker, Visit visit) {
    SharedRow* const rows = instance_.rows.data();
    std::uint32_t* const users = users_.data() + worker;
    const SharedIndex* at = instance_.shared.data() + instance_.shared_begins[sample];
    const SharedIndex* const end = instance_.shared.data() + instance_.shared_begins[sample + 1];
    for (; at < end; ++at) visit(rows[*at], users[*at * std::size_t{Width}]);
  }

  JointInstance<Width>& instance_;
  std::vector<std::int32_t> worker_of_;
  std::vector<std::uint32_t> users_;  // [rows, Width], samples at the worker that use the row
  std::vector<std::int32_t> added_;   // [rows, Width], for the `priced_for` trainers
  std::vector<Placed> placed_;        // [rows], as of the last `cost`
  std::int64_t own_cost_ = 0;         // of what is placed
  std::int64_t shared_cost_ = 0;      // of `placed_`
};

}  // namespace esd
