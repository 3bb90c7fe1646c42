// Teams of threads on the CPU, which run the kernels' steps without a device.
//
// The steps of a solve are templates over a team. All threads of a team call each of its functions together, and each
// function ends with a barrier:
//   each(count, body)  body(i) for every i < count, spread over the threads
//   one(body)          body() by one thread
//   agree(value)       value(), computed by all threads before anyone changes what it depends on
//   lead(body)         body(block) by one block of threads, while the others wait
// The teams of the device are in cuda/device_teams.h.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace esd {

// A team emulated by one thread, which runs the threads of a CUDA block one after another between two barriers.
class SerialTeam {
 public:
  // The threads take turns in another order at every step, drawn from `seed`: no result may depend on it.
  SerialTeam(int threads, unsigned seed) : order_(threads), random_(seed) {
    std::iota(order_.begin(), order_.end(), 0);
  }

  int size() const { return static_cast<int>(order_.size()); }

  template <typename Body>
  void each(int count, Body body) {
    shuffle();
    for (int thread : order_)
      for (int i = thread; i < count; i += size()) body(i);
  }

  template <typename Body>
  void one(Body body) {
    body();
  }

  template <typename Value>
  auto agree(Value value) {
    return value();
  }

  template <typename Body>
  void lead(Body body) {
    body(*this);
  }

 private:
  void shuffle() {
    for (std::size_t i = order_.size() - 1; i > 0; --i) std::swap(order_[i], order_[random_() % (i + 1)]);
  }

  std::vector<int> order_;
  std::minstd_rand random_;
};

// The barrier that the threads of a ThreadTeam share.
class Barrier {
 public:
  explicit Barrier(int threads) : threads_(threads) {}

  int threads() const { return threads_; }

  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    const int round = round_;
    if (++arrived_ == threads_) {
      arrived_ = 0;
      ++round_;
      all_arrived_.notify_all();
    } else {
      all_arrived_.wait(lock, [&] { return round_ != round; });
    }
  }

 private:
  const int threads_;
  std::mutex mutex_;
  std::condition_variable all_arrived_;
  int arrived_ = 0;
  int round_ = 0;
};

// A team of real threads, for the thread sanitizer: it finds a step whose threads race with each other. Every thread
// has a ThreadTeam of its own.
class ThreadTeam {
 public:
  ThreadTeam(Barrier& barrier, int thread) : barrier_(barrier), thread_(thread) {}

  int size() const { return barrier_.threads(); }

  template <typename Body>
  void each(int count, Body body) {
    for (int i = thread_; i < count; i += size()) body(i);
    barrier_.wait();
  }

  template <typename Body>
  void one(Body body) {
    if (thread_ == 0) body();
    barrier_.wait();
  }

  template <typename Value>
  auto agree(Value value) {
    const auto agreed = value();
    barrier_.wait();
    return agreed;
  }

  template <typename Body>
  void lead(Body body) {
    body(*this);
  }

 private:
  Barrier& barrier_;
  const int thread_;
};

}  // namespace esd
