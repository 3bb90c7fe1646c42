// Times the engine's queue of rows to be flushed beside tree heaps, with threads (FRUGAL, experiment 4).
//
// Usage: flush_queues TRACE WORKERS LOOKAHEAD SHARE ROUNDS THREADS...
//
// TRACE has the distinct rows of every training step: for each step a uint32 count and as many uint32 row numbers. All
// queues do the same work, in phases that all threads begin and end together. Before step s, rows of step s + LOOKAHEAD
// that wait become due (adjustPriority), and what s reads is flushed (the gate, dequeue). After it, its rows wait for
// their next read (enqueue), and SHARE of as many are flushed in the order of the queue (dequeue). A row belongs to the
// worker that trained it, a worker to one thread. An entry whose row has changed since stays in every queue until its
// turn comes. Which priority a row has is known before: sets of reads cost every queue the same.
//
// Prints a line per queue and number of threads: queue, threads, seconds of updates, seconds of dequeues (the fewest of
// ROUNDS runs), processor seconds of that run, updates, dequeues. Fails when rows are lost or flushed twice.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/mix64.h"
#include "cuda/host_teams.h"
#include "engine/sync/flush_queue.h"
#include "yardsticks/tree_heap.h"

namespace {

constexpr std::uint32_t kNever = esd::FlushQueue::kNever;
constexpr std::uint32_t kFlushed = kNever - 1;  // the priority of a row that does not wait

struct Put {
  std::uint32_t row, priority;
};

struct Step {
  std::vector<std::vector<Put>> adjusted, trained;  // by worker
};

struct Work {
  unsigned workers;
  std::uint32_t rows = 0;
  std::size_t puts = 0;
  double share;
  std::vector<Step> steps;
};

// Who trains a row in a step; the row waits there until the step that reads it next.
unsigned trainer(std::uint32_t row, std::size_t step, unsigned workers) {
  return esd::mix64(std::uint64_t{row} << 32 | step) % workers;
}

Work work_of(const std::vector<std::vector<std::uint32_t>>& steps, unsigned workers, std::uint32_t lookahead,
             double share) {
  Work work{workers, 0, 0, share, {}};
  for (const auto& rows : steps) {
    for (const std::uint32_t row : rows) work.rows = std::max(work.rows, row + 1);
  }
  constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  std::vector<std::size_t> last(work.rows, kNone);
  work.steps.resize(steps.size());
  for (Step& step : work.steps) step = {std::vector<std::vector<Put>>(workers), std::vector<std::vector<Put>>(workers)};
  for (std::size_t now = 0; now < steps.size(); ++now) {
    for (const std::uint32_t row : steps[now]) {
      const std::size_t before = last[row];
      if (before != kNone) {  // its next read is this step, known when it was trained, or since
        const unsigned owner = trainer(row, before, workers);
        const Put due{row, static_cast<std::uint32_t>(now)};
        if (now - before <= lookahead) {
          work.steps[before].trained[owner].push_back(due);
        } else {
          work.steps[before].trained[owner].push_back({row, kNever});
          work.steps[now - lookahead].adjusted[owner].push_back(due);
          ++work.puts;
        }
        ++work.puts;
      }
      last[row] = now;
    }
  }
  for (std::uint32_t row = 0; row < work.rows; ++row) {
    if (last[row] == kNone) continue;
    work.steps[last[row]].trained[trainer(row, last[row], workers)].push_back({row, kNever});
    ++work.puts;
  }
  return work;
}

// What is flushed, whatever the queue: a row waits with one priority, and entries of another one are outdated.
class Rows {
 public:
  explicit Rows(std::uint32_t rows) : priorities_(std::make_unique<std::atomic<std::uint32_t>[]>(rows)) {
    for (std::uint32_t row = 0; row < rows; ++row) priorities_[row] = kFlushed;
  }
  bool waits(std::uint32_t row) const { return priorities_[row].load(std::memory_order_relaxed) != kFlushed; }
  void wait(const Put& put) { priorities_[put.row].store(put.priority, std::memory_order_release); }
  bool flush(std::uint32_t row, std::uint32_t priority) {
    return priorities_[row].compare_exchange_strong(priority, kFlushed);
  }

 private:
  std::unique_ptr<std::atomic<std::uint32_t>[]> priorities_;
};

// Each queue takes entries of at most a priority until `most` rows are flushed, and returns how many there were.
class TwoLevel {
 public:
  TwoLevel(const Work& work, Rows& rows) : queue_(work.workers), rows_(rows) {}
  void put(unsigned worker, const Put& put, int) { queue_.put(worker, put.row, put.priority); }
  std::size_t take(unsigned worker, std::uint32_t now, std::uint32_t priority, std::size_t most) {
    std::size_t flushed = 0;
    queue_.take(worker, now, [&](std::uint32_t row, std::uint32_t its) {
      if (flushed == most || its > priority) return false;
      flushed += rows_.flush(row, its);
      return true;
    });
    return flushed;
  }

 private:
  esd::FlushQueue queue_;
  Rows& rows_;
};

class Heaps {
 public:
  Heaps(const Work& work, Rows& rows, bool shared) : rows_(rows) {
    for (unsigned heap = 0; heap < (shared ? 1 : work.workers); ++heap) {
      heaps_.push_back(std::make_unique<esd::TreeHeap>(work.puts));
    }
  }
  void put(unsigned worker, const Put& put, int thread) { heap(worker).put({put.priority, put.row}, thread); }
  std::size_t take(unsigned worker, std::uint32_t, std::uint32_t priority, std::size_t most) {
    std::size_t flushed = 0;
    while (flushed < most) {
      const auto taken = heap(worker).take(priority);
      if (!taken) break;
      flushed += rows_.flush(taken->row, taken->priority);
    }
    return flushed;
  }

 private:
  esd::TreeHeap& heap(unsigned worker) { return *heaps_[heaps_.size() == 1 ? 0 : worker]; }
  std::vector<std::unique_ptr<esd::TreeHeap>> heaps_;
  Rows& rows_;
};

struct Times {
  double updates = 0, dequeues = 0, processor = 0;
  std::size_t put = 0, flushed = 0;
};

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

template <typename Queue>
Times run(const Work& work, Queue& queue, Rows& rows, int threads) {
  esd::Barrier barrier(threads);
  std::atomic<std::size_t> put{0}, flushed{0};
  Times times;
  auto since = std::chrono::steady_clock::now();
  const auto each_worker = [&](int thread, double& seconds, auto phase) {
    barrier.wait();
    if (thread == 0) since = std::chrono::steady_clock::now();
    for (unsigned worker = thread; worker < work.workers; worker += threads) phase(worker);
    barrier.wait();
    if (thread == 0) seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - since).count();
  };
  const auto thread_body = [&](int thread) {
    for (std::uint32_t now = 0; now < work.steps.size(); ++now) {
      const Step& step = work.steps[now];
      each_worker(thread, times.updates, [&](unsigned worker) {
        for (const Put& due : step.adjusted[worker]) {
          if (!rows.waits(due.row)) continue;
          rows.wait(due);
          queue.put(worker, due, thread);
        }
      });
      each_worker(thread, times.dequeues, [&](unsigned worker) {
        flushed += queue.take(worker, now - 1, now, std::numeric_limits<std::size_t>::max());
      });
      each_worker(thread, times.updates, [&](unsigned worker) {
        for (const Put& trained : step.trained[worker]) {
          rows.wait(trained);
          queue.put(worker, trained, thread);
        }
        put += step.trained[worker].size();
      });
      each_worker(thread, times.dequeues, [&](unsigned worker) {
        const double most = work.share * static_cast<double>(step.trained[worker].size());
        flushed += queue.take(worker, now, kNever, static_cast<std::size_t>(most));
      });
    }
  };
  const double before = processor_seconds();
  std::vector<std::thread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(thread_body, thread);
  thread_body(0);
  for (std::thread& thread : others) thread.join();
  times.processor = processor_seconds() - before;
  times.put = put;
  times.flushed = flushed;
  return times;
}

Times measure(const Work& work, const std::string& name, int threads) {
  Rows rows(work.rows);
  Times times;
  if (name == "two-level") {
    TwoLevel queue(work, rows);
    times = run(work, queue, rows, threads);
  } else {
    Heaps queue(work, rows, name == "heap");
    times = run(work, queue, rows, threads);
  }
  std::size_t left = 0;
  for (std::uint32_t row = 0; row < work.rows; ++row) left += rows.waits(row);
  if (times.flushed + left != times.put) {
    std::fprintf(stderr, "%s: %zu rows waited, %zu were flushed, %zu are left\n", name.c_str(), times.put,
                 times.flushed, left);
    std::exit(1);
  }
  return times;
}

std::vector<std::vector<std::uint32_t>> read_trace(const char* path) {
  std::FILE* const file = std::fopen(path, "rb");
  if (file == nullptr) {
    std::perror(path);
    std::exit(2);
  }
  std::vector<std::vector<std::uint32_t>> steps;
  std::uint32_t count = 0;
  while (std::fread(&count, sizeof count, 1, file) == 1) {
    std::vector<std::uint32_t>& rows = steps.emplace_back(count);
    if (std::fread(rows.data(), sizeof count, count, file) != count) {
      std::fprintf(stderr, "%s ends within a step\n", path);
      std::exit(2);
    }
  }
  std::fclose(file);
  return steps;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 7) {
    std::fprintf(stderr, "usage: flush_queues TRACE WORKERS LOOKAHEAD SHARE ROUNDS THREADS...\n");
    return 2;
  }
  const Work work =
      work_of(read_trace(arguments[1]), std::atoi(arguments[2]), std::atoi(arguments[3]), std::atof(arguments[4]));
  const int rounds = std::atoi(arguments[5]);
  for (int argument = 6; argument < count; ++argument) {
    const int threads = std::atoi(arguments[argument]);
    for (const char* const name : {"two-level", "heap", "heaps"}) {
      Times best;
      for (int round = 0; round < rounds; ++round) {
        const Times times = measure(work, name, threads);
        if (round == 0 || times.updates + times.dequeues < best.updates + best.dequeues) best = times;
      }
      std::printf("%s %d %.9f %.9f %.9f %zu %zu\n", name, threads, best.updates, best.dequeues, best.processor,
                  work.puts, best.flushed);
    }
  }
}
