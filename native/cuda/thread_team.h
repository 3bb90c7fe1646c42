// A team of real threads, for the thread sanitizer: a step whose threads race with each other is found.
#pragma once

#include <condition_variable>
#include <mutex>

namespace esd {

// What the threads of a team share.
class Meeting {
 public:
  explicit Meeting(int threads) : threads_(threads) {}

  int threads() const { return threads_; }

  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    const int round = round_;
    if (++arrived_ == threads_) {
      arrived_ = 0;
      ++round_;
      all_here_.notify_all();
    } else {
      all_here_.wait(lock, [&] { return round_ != round; });
    }
  }

 private:
  const int threads_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  int arrived_ = 0;
  int round_ = 0;
};

class ThreadTeam {
 public:
  ThreadTeam(Meeting& meeting, int thread) : meeting_(meeting), thread_(thread) {}

  int size() const { return meeting_.threads(); }

  template <class Body>
  void each(int count, Body body) {
    for (int i = thread_; i < count; i += size()) body(i);
    meeting_.wait();
  }

  template <class Body>
  void one(Body body) {
    if (thread_ == 0) body();
    meeting_.wait();
  }

  template <class Value>
  auto agree(Value value) {
    const auto agreed = value();
    meeting_.wait();
    return agreed;
  }

  template <class Body>
  void lead(Body body) {
    body(*this);
  }

 private:
  Meeting& meeting_;
  const int thread_;
};

}  // namespace esd
