// The rows that pulls wait for; finds the pulls whose last missing row was stored.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace esd::rows {

// Must be used by one thread: the event loop, to which other threads announce their rows.
class WaitingRows {
 public:
  using Ticket = std::uint64_t;  // identifies a pull

  // Makes the pull wait for this row at version `wanted` or later.
  void expect(Ticket ticket, std::uint64_t id, std::int64_t wanted) {
    Pull& pull = pulls_[ticket];
    if (pull.missing++ == 0) pull.ids.clear();
    pull.ids.push_back(id);
    waiting_[id].push_back({ticket, wanted});
  }

  // The pull has read the row at its wanted version, and waits for it no more.
  void found(Ticket ticket, std::uint64_t id) {
    const auto row = waiting_.find(id);
    if (row == waiting_.end()) return;
    const auto gone = std::remove_if(row->second.begin(), row->second.end(),
                                     [ticket](const Waiter& waiter) { return waiter.ticket == ticket; });
    if (gone == row->second.end()) return;
    pulls_[ticket].missing -= row->second.end() - gone;
    row->second.erase(gone, row->second.end());
    if (row->second.empty()) waiting_.erase(row);
  }

  // The row can be read at `version` now. Adds to `woken` the pulls whose last missing row it was.
  void announce(std::uint64_t id, std::int64_t version, std::vector<Ticket>& woken) {
    const auto row = waiting_.find(id);
    if (row == waiting_.end()) return;
    std::vector<Waiter>& waiters = row->second;
    const auto served = std::stable_partition(waiters.begin(), waiters.end(),
                                              [version](const Waiter& waiter) { return waiter.wanted > version; });
    for (auto waiter = served; waiter != waiters.end(); ++waiter) {
      if (--pulls_[waiter->ticket].missing == 0) woken.push_back(waiter->ticket);
    }
    waiters.erase(served, waiters.end());
    if (waiters.empty()) waiting_.erase(row);
  }

  // Number of rows that the pull still waits for.
  std::size_t missing(Ticket ticket) const {
    const auto pull = pulls_.find(ticket);
    return pull == pulls_.end() ? 0 : pull->second.missing;
  }

  // A row that the pull waits for, and its version; {0, -1} if it waits for none.
  std::pair<std::uint64_t, std::int64_t> first_missing(Ticket ticket) const {
    const auto pull = pulls_.find(ticket);
    if (pull != pulls_.end()) {
      for (const std::uint64_t id : pull->second.ids) {
        const auto row = waiting_.find(id);
        if (row == waiting_.end()) continue;
        for (const Waiter& waiter : row->second) {
          if (waiter.ticket == ticket) return {id, waiter.wanted};
        }
      }
    }
    return {0, -1};
  }

  // Ends all waits of the pull.
  void forget(Ticket ticket) {
    const auto pull = pulls_.find(ticket);
    if (pull == pulls_.end()) return;
    const std::vector<std::uint64_t> ids = std::move(pull->second.ids);
    if (pull->second.missing > 0) {
      for (const std::uint64_t id : ids) found(ticket, id);
    }
    pulls_.erase(ticket);
  }

  // Number of rows that any pull waits for.
  std::size_t size() const { return waiting_.size(); }

 private:
  struct Waiter {
    Ticket ticket;
    std::int64_t wanted;
  };
  struct Pull {
    std::vector<std::uint64_t> ids;  // expected since the pull last waited for nothing
    std::size_t missing = 0;
  };

  std::unordered_map<std::uint64_t, std::vector<Waiter>> waiting_;  // by id; no list is empty
  std::unordered_map<Ticket, Pull> pulls_;
};

}  // namespace esd::rows
