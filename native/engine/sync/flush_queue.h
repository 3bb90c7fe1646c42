// Which rows are pushed before anybody needs them, and in which order (FRUGAL §3.3).
//
// A row that was trained and not pushed waits at each worker that has something of it, with the next iteration that
// reads it as its priority; kNever if none of the iterations that are known does. The queue has two levels: an entry
// lies in the bucket of its priority, and each bucket is first in, first out. So entries come and go in constant time.
// An entry whose row has changed since stays where it is, and is dropped when its turn comes: the row has another entry.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "common/mix64.h"
#include "engine/rows/index_types.h"

namespace esd {

class FlushQueue {
 public:
  static constexpr std::uint32_t kSteps = 32;  // iterations that reads are known of, the present one included
  static constexpr std::uint32_t kNever = 0xffffffffu;

  explicit FlushQueue(unsigned workers) : queues_(workers) {}

  // The reads of each id (FRUGAL's R set), one bit of a word for each iteration of the next kSteps.
  void read(std::uint64_t id, std::uint32_t iteration) {
    reads_[id] |= bit(iteration);
    readers_[iteration % kSteps].push_back(id);
  }
  void pass(std::uint32_t iteration) {
    std::vector<std::uint64_t>& ids = readers_[iteration % kSteps];
    for (const std::uint64_t id : ids) {
      const auto found = reads_.find(id);
      if (found == reads_.end()) continue;  // the iteration was told twice
      found->second &= ~bit(iteration);
      if (found->second == 0) reads_.erase(found);
    }
    ids.clear();
  }

  // The first iteration after `now` that reads the id.
  std::uint32_t next_read(std::uint64_t id, std::uint32_t now) const {
    const auto found = reads_.find(id);
    if (found == reads_.end()) return kNever;
    const unsigned shift = (now + 1) % kSteps;
    const std::uint64_t twice = std::uint64_t{found->second} << kSteps | found->second;
    const auto ahead = static_cast<std::uint32_t>(twice >> shift) & ~(1u << (kSteps - 1));  // without `now` itself
    return ahead == 0 ? kNever : now + 1 + static_cast<std::uint32_t>(__builtin_ctz(ahead));
  }

  // A row lies among those of no known reader once: on a link that is never idle nothing is taken out of them.
  void put(unsigned worker, RowNumber row, std::uint32_t priority) {
    Queue& queue = queues_[worker];
    if (priority != kNever) {
      queue.due[priority % kSteps].push_back(row);
      return;
    }
    if (row >= queue.is_later.size()) queue.is_later.resize(2 * (row + std::size_t{1}));
    if (queue.is_later[row]) return;
    queue.is_later[row] = true;
    queue.later.push_back(row);
  }

  // Takes a worker's entries of later priority than `now` out, the earliest first: `use(row, priority)` returns whether
  // to go on with the next; if not, its entry stays.
  template <typename Use>
  void take(unsigned worker, std::uint32_t now, Use use) {
    Queue& queue = queues_[worker];
    queue.due[now % kSteps].clear();  // the iteration itself pushes what others need of these rows, and trains them
    for (std::uint32_t priority = now + 1; priority < now + kSteps; ++priority) {
      Bucket& bucket = queue.due[priority % kSteps];
      for (; !bucket.empty(); bucket.pop_front()) {
        if (!use(bucket.front(), priority)) return;
      }
    }
    for (; !queue.later.empty(); queue.later.pop_front()) {
      if (!use(queue.later.front(), kNever)) return;
      queue.is_later[queue.later.front()] = false;
    }
  }

  // Drops the entries of no known reader for which `keep(row)` is false, once they may be more than half.
  template <typename Keep>
  void sweep(unsigned worker, Keep keep) {
    Queue& queue = queues_[worker];
    if (queue.later.size() < queue.swept_at) return;
    const auto drop = [&](RowNumber row) {
      if (keep(row)) return false;
      queue.is_later[row] = false;
      return true;
    };
    queue.later.erase(std::remove_if(queue.later.begin(), queue.later.end(), drop), queue.later.end());
    queue.swept_at = std::max(kLeastSwept, 2 * queue.later.size());
  }

  // Whether an entry of no known reader names the row.
  bool waits(RowNumber row) const {
    return std::any_of(queues_.begin(), queues_.end(),
                       [row](const Queue& queue) { return row < queue.is_later.size() && queue.is_later[row]; });
  }

  // How many entries wait.
  std::size_t size() const {
    std::size_t entries = 0;
    for (const Queue& queue : queues_) {
      entries += queue.later.size();
      for (const Bucket& bucket : queue.due) entries += bucket.size();
    }
    return entries;
  }

  std::size_t memory_bytes() const {
    constexpr std::size_t kNode = 2 * sizeof(void*) + sizeof(std::uint64_t) + sizeof(std::uint32_t);
    std::size_t bytes = size() * sizeof(RowNumber) + reads_.size() * kNode;
    for (const Queue& queue : queues_) bytes += queue.is_later.capacity() / 8;
    for (const std::vector<std::uint64_t>& ids : readers_) bytes += ids.capacity() * sizeof(std::uint64_t);
    return bytes;
  }

  // All rows are clean: nothing waits.
  void clear() {
    for (Queue& queue : queues_) queue = Queue();
  }

 private:
  static constexpr std::size_t kLeastSwept = 4096;

  using Bucket = std::deque<RowNumber>;

  struct Queue {
    Bucket due[kSteps];  // by priority, modulo kSteps
    Bucket later;
    std::vector<bool> is_later;          // by row number
    std::size_t swept_at = kLeastSwept;  // entries in `later`
  };

  struct Hash {
    std::size_t operator()(std::uint64_t id) const { return mix64(id); }
  };

  static std::uint32_t bit(std::uint32_t iteration) { return 1u << iteration % kSteps; }

  std::unordered_map<std::uint64_t, std::uint32_t, Hash> reads_;
  std::vector<std::uint64_t> readers_[kSteps];  // by iteration, modulo kSteps, what it reads
  std::vector<Queue> queues_;                   // by worker
};

}  // namespace esd
