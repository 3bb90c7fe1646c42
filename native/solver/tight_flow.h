// Places all rows on their tight workers as evenly as prices allow: pass, groups and maximum flow together.
#pragma once

#include "flow.h"
#include "groups.h"
#include "tight.h"

namespace esd {

template <class T, class Mask>
class TightFlow {
 public:
  // After this, `violated()` names the workers whose prices are too low; it is empty when the prices are optimal.
  void run(const Columns<T>& columns, const T* prices, const int* capacities, int workers, bool sorted_groups = false) {
    low.resize(static_cast<std::size_t>(columns.stride));
    tight_.resize(static_cast<std::size_t>(columns.stride));
    tight_pass(columns, prices, low.data(), tight_.data());
    groups_.build(tight_.data(), columns.rows);
    if (sorted_groups) groups_.sort();
    const auto groups = static_cast<std::size_t>(groups_.count());
    const auto n = static_cast<std::size_t>(workers);
    rows_.resize(groups * n);
    users_.resize(groups);
    left_.resize(groups);
    load.resize(n);
    flow_ = {groups_.masks.data(), groups_.sizes.data(), capacities,  groups_.count(), workers,
             rows_.data(),         users_.data(),        load.data(), left_.data()};
    Mask levels[kMaxWorkers + 1];
    spread(flow_);
    while (relieve(flow_, levels)) {
    }
  }

  Mask violated() const { return violated_set(flow_); }

  // Rows of a group go to its workers in ascending order of both. Uses the flow up.
  void assign(int* worker_of_row) {
    const std::vector<int>& group = groups_.of_row;
    for (std::size_t i = 0; i < group.size(); ++i) worker_of_row[i] = hand_out(flow_, group[i]);
  }

  std::vector<T> low;     // least cost + price of each row
  std::vector<int> load;  // rows at each worker; above capacity only at violated workers

 private:
  std::vector<Mask> tight_;
  Groups<Mask> groups_;
  std::vector<int> rows_;
  std::vector<Mask> users_;
  std::vector<int> left_;
  Flow<Mask> flow_{};
};

}  // namespace esd
