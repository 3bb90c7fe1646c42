#include "engine/joint/search.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "common/mix64.h"
#include "common/workers.h"
#include "engine/batch/row_sizes.h"
#include "engine/joint/instance.h"
#include "engine/joint/lookahead.h"
#include "engine/joint/placement.h"
#include "engine/joint/transport.h"
#include "engine/rows/index_types.h"

namespace esd {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kWideShare = 0.5;        // of the samples that a wide round frees
constexpr int kShifts = 10;               // of workloads, at most
constexpr double kFirstShift = 0.5;       // of the way to equal times
constexpr double kSmallerShift = 0.7;     // of the last one, after one that did not help
constexpr double kShiftShare = 0.4;       // of the samples that are free when workloads shift
constexpr double kEagerShare = 0.25;      // that a narrow round frees of the samples whose move would cost little
constexpr double kReluctantShare = 0.03;  // that it frees of the others

// Draws by splitmix64.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : state_(mix64(seed + kStep)) {}
  bool happens(double probability) {
    return mix64(state_ += kStep) >> 32 < static_cast<std::uint64_t>(probability * 0x1p32);
  }

 private:
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15ULL;
  std::uint64_t state_;
};

template <unsigned Width>
class JointSearch {
 public:
  JointSearch(const PreparedBatch& batch, std::size_t samples, const std::vector<WorkerSet>& next,
              const RowSizes& sizes, const ReuseStatistics& reuse, const JointRequest& request, bool ahead = false)
      : batch_(batch),
        sizes_(sizes),
        request_(request),
        most_rounds_(request.most_rounds[ahead ? 0 : 1]),
        order_(content_order(batch, samples)),
        instance_(batch, order_, next, request.link_costs, request.workers, sizes, reuse),
        placement_(instance_),
        draws_(request.seed),
        regrets_(instance_.samples),
        prices_(request.sites ? request.sites->count : 1) {
    eager_below_ = static_cast<std::int32_t>(batch.mean_size) *
                   *std::max_element(instance_.links.pull, instance_.links.pull + Width);
  }

  JointResult run() {
    free_.resize(instance_.samples);
    std::iota(free_.begin(), free_.end(), 0u);
    std::copy(request_.capacities, request_.capacities + request_.workers, room_);
    if (!free_.empty()) place_free();
    keep_if_best();
    result_.start_cost = result_.cost;

    for (unsigned round = 0; round < request_.wide_rounds && in_time(); ++round) {
      if (!take_away([](SampleIndex) { return kWideShare; })) continue;
      place_free();
      keep_if_best();
    }
    for (unsigned round = 0; round < request_.narrow_rounds && in_time(); ++round) {
      if (!take_away([&](SampleIndex i) { return regrets_[i] <= eager_below_ ? kEagerShare : kReluctantShare; })) {
        continue;
      }
      place_free();
      note_regrets();
      keep_if_best();
    }
    if (request_.limits && instance_.samples > 0) shift_workloads();
    result_.assignment = in_batch_order(result_.assignment);
    result_.rounds = {0, rounds_};
    return std::move(result_);
  }

 private:
  bool in_time() {
    if (rounds_ >= most_rounds_) return false;
    if (request_.deadline != Clock::time_point::max() && Clock::now() >= request_.deadline) return false;
    ++rounds_;
    return true;
  }

  unsigned site_of_worker(unsigned worker) const {
    return request_.sites ? static_cast<unsigned>(request_.sites->of_workers[worker]) : 0;
  }
  unsigned site_of_sample(SampleIndex sample) const {
    return request_.sites ? static_cast<unsigned>(request_.sites->of_samples[order_[sample]]) : 0;
  }

  // Whether any of the free samples might go to another worker than it came from.
  bool there_is_a_choice() const {
    if (!request_.sites) return std::count(room_, room_ + Width, 0) < static_cast<int>(Width) - 1;
    std::vector<unsigned> workers(request_.sites->count);  // of each site, that free samples come from
    for (unsigned j = 0; j < request_.workers; ++j) workers[site_of_worker(j)] += room_[j] > 0;
    return *std::max_element(workers.begin(), workers.end()) > 1;
  }

  // Draws the samples to free. False when each would return to the worker that it comes from.
  template <typename Share>
  bool take_away(Share share) {
    free_.resize(instance_.samples);
    std::fill_n(room_, Width, 0);
    std::size_t count = 0;
    const std::int32_t* const workers = placement_.assignment().data();
    for (SampleIndex i = 0; i < instance_.samples; ++i) {
      const bool goes = draws_.happens(share(i));  // no branch, since nobody can predict it
      free_[count] = i;
      count += goes;
      room_[workers[i]] += goes;
    }
    free_.resize(count);
    if (!there_is_a_choice()) return false;
    for (const SampleIndex i : free_) placement_.take(i);
    return true;
  }

  void place_free() {
    placement_.price(free_, costs_);
    if (request_.sites) {
      chosen_.resize(free_.size());
      for (unsigned site = 0; site < request_.sites->count; ++site) solve_site(site);
    } else {
      transport_.solve(costs_, room_, prices_[0].data(), chosen_);
    }
    for (std::size_t f = 0; f < free_.size(); ++f) placement_.put(free_[f], static_cast<unsigned>(chosen_[f]));
  }

  // Chooses among the workers of one site for the free samples of this site.
  void solve_site(unsigned site) {
    rows_of_site_.clear();
    costs_of_site_.clear();
    for (std::size_t f = 0; f < free_.size(); ++f) {
      if (site_of_sample(free_[f]) != site) continue;
      rows_of_site_.push_back(f);
      costs_of_site_.insert(costs_of_site_.end(), &costs_[f * Width], &costs_[f * Width] + Width);
    }
    if (rows_of_site_.empty()) return;
    int room[Width] = {};
    for (unsigned j = 0; j < request_.workers; ++j) room[j] = site_of_worker(j) == site ? room_[j] : 0;
    transport_.solve(costs_of_site_, room, prices_[site].data(), chosen_at_site_);
    for (std::size_t r = 0; r < rows_of_site_.size(); ++r) chosen_[rows_of_site_[r]] = chosen_at_site_[r];
  }

  // Notes what it would cost at least to have each of the samples just placed elsewhere.
  void note_regrets() {
    for (std::size_t f = 0; f < free_.size(); ++f) {
      const std::int32_t* costs = &costs_[f * Width];
      const unsigned site = site_of_sample(free_[f]);
      const std::array<std::int32_t, Width>& prices = prices_[site];
      std::int32_t elsewhere = std::numeric_limits<std::int32_t>::max();
      for (int j = 0; j < static_cast<int>(Width); ++j) {
        if (room_[j] <= 0 || j == chosen_[f] || (request_.sites && site_of_worker(static_cast<unsigned>(j)) != site)) {
          continue;
        }
        elsewhere = std::min(elsewhere, costs[j] + prices[j]);
      }
      if (elsewhere == std::numeric_limits<std::int32_t>::max()) continue;  // its site has no other worker with room
      regrets_[free_[f]] = elsewhere - (costs[chosen_[f]] + prices[chosen_[f]]);
    }
  }

  void shift_workloads() {
    move_to(result_.assignment);
    std::vector<int> workloads(request_.capacities, request_.capacities + request_.workers);
    std::vector<double> times = placed_times();
    double step = kFirstShift;
    for (int trial = 0; trial < kShifts && in_time(); ++trial) {
      const std::vector<int> wanted = shifted_workloads(workloads, times, *request_.limits, step);
      free_for(workloads, wanted);
      if (free_.empty()) break;
      place_free();
      const std::vector<double> shifted = placed_times();
      if (*std::max_element(shifted.begin(), shifted.end()) < *std::max_element(times.begin(), times.end())) {
        workloads = wanted;
        times = shifted;
        result_.assignment = placement_.assignment();
      } else {
        move_to(result_.assignment);
        step *= kSmallerShift;
      }
    }
    result_.cost = static_cast<double>(placement_.cost()) / instance_.links.scale;
  }

  std::vector<double> placed_times() const {
    return expected_times(batch_, sizes_, in_batch_order(placement_.assignment()), request_.link_costs,
                          *request_.limits, request_.workers);
  }

  // An assignment in the order of the samples in the batch, from one in the order here.
  std::vector<std::int32_t> in_batch_order(const std::vector<std::int32_t>& assignment) const {
    std::vector<std::int32_t> result(assignment.size());
    for (std::size_t i = 0; i < order_.size(); ++i) result[order_[i]] = assignment[i];
    return result;
  }

  void move_to(const std::vector<std::int32_t>& assignment) {
    for (SampleIndex i = 0; i < instance_.samples; ++i) {
      if (placement_.assignment()[i] == assignment[i]) continue;
      placement_.take(i);
      placement_.put(i, static_cast<unsigned>(assignment[i]));
    }
  }

  // Takes a share of the samples away, and of every worker at least as many as it is to give away.
  void free_for(const std::vector<int>& workloads, const std::vector<int>& wanted) {
    std::fill_n(room_, Width, 0);
    free_.clear();
    std::vector<SampleIndex> kept;
    for (SampleIndex i = 0; i < instance_.samples; ++i) {
      const bool goes = draws_.happens(kShiftShare);
      (goes ? free_ : kept).push_back(i);
      room_[placement_.assignment()[i]] += goes;
    }
    for (const SampleIndex i : kept) {
      const auto worker = static_cast<std::size_t>(placement_.assignment()[i]);
      if (room_[worker] >= workloads[worker] - wanted[worker]) continue;
      free_.push_back(i);
      ++room_[worker];
    }
    for (std::size_t j = 0; j < workloads.size(); ++j) room_[j] += wanted[j] - workloads[j];
    for (const SampleIndex i : free_) placement_.take(i);
  }

  void keep_if_best() {
    if (rounds_ > 0 && placement_.cost() >= best_) return;
    best_ = placement_.cost();
    result_.assignment = placement_.assignment();
    result_.cost = static_cast<double>(best_) / instance_.links.scale;
  }

  const PreparedBatch& batch_;
  const RowSizes& sizes_;
  const JointRequest& request_;
  const unsigned most_rounds_;
  unsigned rounds_ = 0;                   // besides the first
  const std::vector<SampleIndex> order_;  // of content: sample i here is sample order_[i] of the batch
  JointInstance<Width> instance_;
  JointPlacement<Width> placement_;
  Transport<Width> transport_;
  Draws draws_;
  std::vector<std::int32_t> regrets_;  // by sample, as of its last narrow round
  std::int32_t eager_below_;           // the cost of one row's pull over the slowest link

  std::vector<SampleIndex> free_;                        // samples that are nowhere
  int room_[Width] = {};                                 // how many of them each worker will take
  std::vector<std::int32_t> costs_;                      // [free_, Width]
  std::vector<std::array<std::int32_t, Width>> prices_;  // of the last transportation problem, by site
  std::vector<int> chosen_;                              // [free_], the workers that it found

  std::vector<std::size_t> rows_of_site_;    // the places among `free_` of one site's samples
  std::vector<std::int32_t> costs_of_site_;  // their rows of `costs_`
  std::vector<int> chosen_at_site_;

  std::int64_t best_ = 0;
  JointResult result_;
};

// The deadline of the placement of all batches together: it may take half of the time that is left.
Clock::time_point halfway(Clock::time_point deadline) {
  if (deadline == Clock::time_point::max()) return deadline;
  const Clock::time_point now = Clock::now();
  return now + (deadline - now) / 2;
}

template <unsigned Width>
JointResult search(const PreparedBatch& batch, const RowSizes& sizes, const ReuseStatistics& reuse,
                   const JointRequest& request) {
  if (request.lookahead.empty()) return JointSearch<Width>(batch, batch.samples, {}, sizes, reuse, request).run();
  const Lookahead lookahead(batch, request.lookahead);
  const std::vector<std::int32_t> capacities = lookahead.capacities(request.capacities, request.workers);
  JointRequest whole = request;
  whole.capacities = capacities.data();
  whole.deadline = halfway(request.deadline);
  whole.limits = nullptr;
  const JointResult plan = JointSearch<Width>(batch, batch.samples, {}, sizes, reuse, whole, true).run();
  JointResult result =
      JointSearch<Width>(batch, lookahead.samples(), lookahead.next_trainers(plan.assignment), sizes, reuse, request)
          .run();
  result.rounds[0] = plan.rounds[1];
  return result;
}

}  // namespace

JointResult joint_search(const PreparedBatch& batch, const RowSizes& sizes, const ReuseStatistics& reuse,
                         const JointRequest& request) {
  if constexpr (kMaxWorkers <= 64) {  // otherwise few workers are rare, and the search takes long to compile
    if (request.workers <= 4) return search<4>(batch, sizes, reuse, request);
    if (request.workers <= 8) return search<8>(batch, sizes, reuse, request);
    if (request.workers <= 16) return search<16>(batch, sizes, reuse, request);
    if (request.workers <= 32) return search<32>(batch, sizes, reuse, request);
  }
  return search<kMaxWorkers>(batch, sizes, reuse, request);
}

}  // namespace esd
