// The ids of rows that change, in generations, for readers that follow a table. It is thread-safe.
//
// Ids gather, each once, until a reader comes; they are a generation with a number then. A reader has all generations up
// to a number, and asks for the ids of the later ones. The memory is bounded: the oldest generations make room, and a
// reader that lacks one of them has to begin anew.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "rows/id_set.h"

namespace esd::rows {

class ChangedRows {
 public:
  struct Read {
    std::uint64_t last;              // the reader has all generations up to this one then
    double seconds;                  // since the first change of the ids; 0 without ids
    std::vector<std::uint64_t> ids;  // ascending
  };

  // `limit`: bytes of the gathering ids, and as many of the generations.
  explicit ChangedRows(std::size_t limit) : limit_(limit) {}

  // Adds the id of a row that was written. A writer waits for no reader.
  void add(std::uint64_t id) {
    const std::lock_guard lock(gathering_mutex_);
    if (!gathering_->add(id)) return;
    if (gathered_++ == 0) since_ = Clock::now();
    if (gathered_ * kSetBytes <= limit_) return;
    gather_anew();
    lost_ = true;
  }

  // A number for a reader that is about to read all rows.
  std::uint64_t begin() {
    const std::lock_guard lock(readers_mutex_);
    end_generation();
    return last_;
  }

  // The ids that have changed after a generation; nothing if some of them were dropped.
  std::optional<Read> read(std::uint64_t after) {
    const std::lock_guard lock(readers_mutex_);
    end_generation();
    if (after < floor_ || after > last_) return std::nullopt;
    Read read{last_, 0.0, {}};
    for (const Generation& each : generations_) {
      if (each.number <= after) continue;
      if (read.ids.empty()) read.seconds = std::chrono::duration<double>(Clock::now() - each.since).count();
      read.ids.insert(read.ids.end(), each.ids.begin(), each.ids.end());
    }
    std::sort(read.ids.begin(), read.ids.end());
    read.ids.erase(std::unique(read.ids.begin(), read.ids.end()), read.ids.end());
    return read;
  }

  // Makes every reader begin anew: rows have changed of which no ids were added.
  void lose() {
    const std::lock_guard lock(gathering_mutex_);
    gather_anew();
    lost_ = true;
  }

  std::size_t memory_bytes() const {
    const std::lock_guard readers(readers_mutex_);
    const std::lock_guard lock(gathering_mutex_);
    return sizeof(*this) + gathering_->memory_bytes() + kept_ * sizeof(std::uint64_t);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kSetBytes = 14;  // the most that an id takes in a set

  struct Generation {
    std::uint64_t number;
    Clock::time_point since;
    std::vector<std::uint64_t> ids;
  };

  void gather_anew() {
    gathering_ = std::make_unique<IdSet>();
    gathered_ = 0;
  }

  // Makes the gathered ids a generation. Writers wait for the exchange of the set only.
  void end_generation() {
    auto set = std::make_unique<IdSet>();
    bool lost = false;
    std::size_t count = 0;
    Clock::time_point since;
    {
      const std::lock_guard lock(gathering_mutex_);
      lost = std::exchange(lost_, false);
      count = std::exchange(gathered_, 0);
      since = since_;
      if (count > 0) gathering_.swap(set);
    }
    if (lost) {
      generations_.clear();
      kept_ = 0;
      floor_ = ++last_;
    }
    if (count == 0) return;
    Generation generation{++last_, since, std::vector<std::uint64_t>(count)};
    std::uint64_t cursor = 0;
    for (std::size_t n = 0; n < count;) n += set->scan(cursor, count - n, generation.ids.data() + n);
    generations_.push_back(std::move(generation));
    kept_ += count;
    while (kept_ * sizeof(std::uint64_t) > limit_) {
      floor_ = generations_.front().number;
      kept_ -= generations_.front().ids.size();
      generations_.pop_front();
    }
  }

  const std::size_t limit_;

  mutable std::mutex gathering_mutex_;
  std::unique_ptr<IdSet> gathering_ = std::make_unique<IdSet>();
  std::size_t gathered_ = 0;  // number of ids in the set
  Clock::time_point since_;   // when the first of them came
  bool lost_ = false;         // whether ids were dropped since the last generation

  mutable std::mutex readers_mutex_;  // taken before the other one
  std::deque<Generation> generations_;
  std::size_t kept_ = 0;     // number of their ids
  std::uint64_t last_ = 0;   // the last number
  std::uint64_t floor_ = 0;  // the least number of which all later generations are kept
};

}  // namespace esd::rows
