// The rows that pulls wait for; finds the pulls whose last missing row was stored.
//
// A read in another thread takes a while, and rows may be stored meanwhile. Announcements are kept while any pull reads,
// so that only the rows which a read has found behind their version are entered here, and not every row that is read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
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

  // The pull begins to read rows in another thread. A pull has one read at a time.
  void begin_read(Ticket ticket) { reads_.emplace(ticket, dropped_ + announced_.size()); }

  // The read has ended. The pull waits for its rows at `behind`, an iterable of {id, wanted}, that were not announced
  // since the read began. Does nothing if the pull was forgotten meanwhile.
  template <typename Rows>
  void end_read(Ticket ticket, const Rows& behind) {
    const auto read = reads_.find(ticket);
    if (read == reads_.end()) return;
    for (const auto& [id, wanted] : behind) expect(ticket, id, wanted);
    if (!behind.empty()) {
      for (std::size_t i = read->second - dropped_; i < announced_.size(); ++i) {
        const auto [id, version] = announced_[i];
        stop(ticket, id, version);
      }
    }
    reads_.erase(read);
    drop_announced();
  }

  // The row can be read at `version` now. Adds to `woken` the pulls whose last missing row it was.
  void announce(std::uint64_t id, std::int64_t version, std::vector<Ticket>& woken) {
    if (!reads_.empty()) announced_.emplace_back(id, version);
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

  // Ends all waits of the pull, and its read.
  void forget(Ticket ticket) {
    if (reads_.erase(ticket) > 0) drop_announced();
    const auto pull = pulls_.find(ticket);
    if (pull == pulls_.end()) return;
    const std::vector<std::uint64_t> ids = std::move(pull->second.ids);
    if (pull->second.missing > 0) {
      for (const std::uint64_t id : ids) stop(ticket, id, std::numeric_limits<std::int64_t>::max());
    }
    pulls_.erase(ticket);
  }

  // Number of rows that any pull waits for.
  std::size_t size() const { return waiting_.size(); }

  // Number of announcements that are kept for reads.
  std::size_t kept_announcements() const { return announced_.size(); }

 private:
  struct Waiter {
    Ticket ticket;
    std::int64_t wanted;
  };
  struct Pull {
    std::vector<std::uint64_t> ids;  // expected since the pull last waited for nothing
    std::size_t missing = 0;
  };

  // The pull waits no more for the row at versions up to `version`.
  void stop(Ticket ticket, std::uint64_t id, std::int64_t version) {
    const auto row = waiting_.find(id);
    if (row == waiting_.end()) return;
    const auto gone = std::remove_if(row->second.begin(), row->second.end(), [ticket, version](const Waiter& waiter) {
      return waiter.ticket == ticket && waiter.wanted <= version;
    });
    if (gone == row->second.end()) return;
    pulls_[ticket].missing -= row->second.end() - gone;
    row->second.erase(gone, row->second.end());
    if (row->second.empty()) waiting_.erase(row);
  }

  // Drops the announcements from before every read that is under way.
  void drop_announced() {
    std::size_t first = dropped_ + announced_.size();
    for (const auto& [ticket, begun] : reads_) first = std::min(first, begun);
    const std::size_t outdated = first - dropped_;
    if (2 * outdated < announced_.size()) return;  // so that each announcement is moved a bounded number of times
    announced_.erase(announced_.begin(), announced_.begin() + static_cast<std::ptrdiff_t>(outdated));
    dropped_ = first;
  }

  std::unordered_map<std::uint64_t, std::vector<Waiter>> waiting_;  // by id; no list is empty
  std::unordered_map<Ticket, Pull> pulls_;
  std::unordered_map<Ticket, std::size_t> reads_;                  // under way; the number of announcements before each
  std::vector<std::pair<std::uint64_t, std::int64_t>> announced_;  // id and version, since the oldest read or before
  std::size_t dropped_ = 0;                                        // number of announcements before those
};

}  // namespace esd::rows
