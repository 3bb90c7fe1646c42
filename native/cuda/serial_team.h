// A team of threads played by one: what a CUDA block does between two barriers, thread after thread.
#pragma once

#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace esd {

// The interface of every team. All threads call each function together; each ends with a barrier.
class SerialTeam {
 public:
  // The threads take turns in another order at every step, drawn from `seed`: no result may depend on it.
  SerialTeam(int threads, unsigned seed) : order_(static_cast<std::size_t>(threads)), random_(seed) {
    std::iota(order_.begin(), order_.end(), 0);
  }

  int size() const { return static_cast<int>(order_.size()); }

  // body(i) for every i < count.
  template <class Body>
  void each(int count, Body body) {
    shuffle();
    for (int thread : order_)
      for (int i = thread; i < count; i += size()) body(i);
  }

  // body() by one thread.
  template <class Body>
  void one(Body body) {
    body();
  }

  // A value that all threads compute before anyone changes what it depends on.
  template <class Value>
  auto agree(Value value) {
    return value();
  }

  // body(block) by one block of threads.
  template <class Body>
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

}  // namespace esd
