// The unanswered pulls of one frame, and the messages that answer them.
//
// A pull is due until it is read, and lags from then until its caller makes it due again. The message of an answer,
// ExchangeResponse in protos/ps.proto, is written where it will be sent from; each row is copied into it once.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "rows/row_table.h"
#include "wire/answer_writer.h"

namespace esd::rows {

inline std::int64_t at_birth(std::int64_t version) { return version - trainings_of(version); }

// A row that is newer than a pull wants it: the sender of the pull follows an outdated plan.
struct Stale {
  std::uint64_t id;
  std::int64_t version;
  std::int64_t wanted;
};

// A row as it was found for a pull.
struct FoundRow {
  std::int64_t version;
  bool initial;  // it was never trained: its values follow from the table's seed and its id, and its state is 0
};

// Bytes of a row in an answer.
struct PulledBytes {
  std::size_t whole;   // a row with its optimizer state
  std::size_t values;  // a row without it
};

class ExactPulls {
 public:
  // The last `stateless` pulls (all, if there are fewer) want no optimizer state.
  ExactPulls(std::vector<std::uint64_t> ids, std::vector<std::int64_t> wanted, std::size_t stateless)
      : ids_(std::move(ids)), wanted_(std::move(wanted)), whole_(ids_.size() - stateless), due_(ids_.size()) {
    std::iota(due_.begin(), due_.end(), 0u);
  }

  // Positions of the pulls, ascending.
  const std::vector<std::uint32_t>& due() const { return due_; }
  const std::vector<std::uint32_t>& lagging() const { return lagging_; }

  // The rows that the last answer found behind their version.
  const std::vector<std::uint32_t>& last_behind() const { return last_behind_; }

  std::uint64_t id(std::uint32_t position) const { return ids_[position]; }
  std::int64_t wanted(std::uint32_t position) const { return wanted_[position]; }
  bool done() const { return due_.empty() && lagging_.empty(); }
  const std::optional<Stale>& stale() const { return stale_; }

  // Makes the lagging pulls due again.
  void retry() {
    std::vector<std::uint32_t> due;
    due.reserve(due_.size() + lagging_.size());
    std::merge(due_.begin(), due_.end(), lagging_.begin(), lagging_.end(), std::back_inserter(due));
    due_ = std::move(due);
    lagging_.clear();
  }

  // Size of the longest answer with up to `limit` of the due rows.
  std::size_t longest_answer(std::size_t limit, PulledBytes bytes) const {
    const std::size_t rows = std::min(limit, due_.size());
    return wire::AnswerWriter::kBesideRows + rows * wire::AnswerWriter::kBesideRow + size_of(due_, rows, bytes);
  }

  // Writes the answer with all of the first `limit` due rows that have their wanted version; the others then lag. For
  // each row, `read(id, wanted, out, bytes)` returns a FoundRow. If its version is `wanted`, and it is not an initial row,
  // it has copied the first `bytes` bytes of the row to `out`. Initial rows are marked and not sent.
  //
  // With `storing`, the pushes of the frame are not acknowledged yet, so that no answer with rows is its last one.
  //
  // Returns the size of the message; 0 if it would be empty. If a row is stale, only `stale` changes.
  template <typename Read>
  std::size_t answer(std::uint64_t sequence, const wire::Stored& stored, std::size_t limit, PulledBytes bytes,
                     const Read& read, std::uint8_t* message, bool storing = false) {
    const std::size_t n = std::min(limit, due_.size());
    wire::AnswerWriter writer(message, sequence, stored);
    std::uint8_t* const rows = writer.rows_at(size_of(due_, n, bytes));
    std::uint8_t* rows_end = rows;
    std::vector<std::uint32_t>& found = found_;
    std::vector<std::uint32_t>& behind = last_behind_;
    found.clear();
    behind.clear();
    initial_.clear();
    for (std::size_t i = 0; i < n; ++i) {
      const std::uint32_t position = due_[i];
      const std::size_t row_bytes = size_of(position, bytes);
      const FoundRow row = read(ids_[position], wanted_[position], rows_end, row_bytes);
      if (row.version > wanted_[position]) {
        stale_ = Stale{ids_[position], row.version, wanted_[position]};
        return 0;
      }
      const bool there = row.version == wanted_[position];
      (there ? found : behind).push_back(position);
      if (!there) continue;
      if (!row.initial) rows_end += row_bytes;
      initial_.push_back(row.initial);
    }
    due_.erase(due_.begin(), due_.begin() + static_cast<std::ptrdiff_t>(n));
    const auto middle = static_cast<std::ptrdiff_t>(lagging_.size());
    lagging_.insert(lagging_.end(), behind.begin(), behind.end());
    std::inplace_merge(lagging_.begin(), lagging_.begin() + middle, lagging_.end());
    const bool last = done() && !storing;
    if (found.empty() && !stored.any && !last) return 0;
    if (!found.empty()) {
      if (rows_end > rows) writer.rows(rows, rows_end);
      const bool in_order = found.front() == cursor_ && found.back() == cursor_ + found.size() - 1;
      if (!in_order) writer.positions(found);
      if (std::find(initial_.begin(), initial_.end(), 1) != initial_.end()) writer.initial(initial_);
      cursor_ = found.back() + 1;
    }
    if (last) writer.done();
    return writer.size();
  }

 private:
  std::size_t size_of(std::uint32_t position, PulledBytes bytes) const {
    return position < whole_ ? bytes.whole : bytes.values;
  }

  // The rows at the first `n` positions, which ascend.
  std::size_t size_of(const std::vector<std::uint32_t>& positions, std::size_t n, PulledBytes bytes) const {
    const auto end = positions.begin() + static_cast<std::ptrdiff_t>(n);
    const auto whole = static_cast<std::size_t>(std::lower_bound(positions.begin(), end, whole_) - positions.begin());
    return whole * bytes.whole + (n - whole) * bytes.values;
  }

  std::vector<std::uint64_t> ids_;
  std::vector<std::int64_t> wanted_;
  std::size_t whole_;  // number of pulls, the first ones, that want the optimizer state
  std::vector<std::uint32_t> due_;
  std::vector<std::uint32_t> lagging_;
  std::vector<std::uint32_t> found_;  // of the last answer
  std::vector<std::uint32_t> last_behind_;
  std::vector<std::uint8_t> initial_;  // for each of `found_`: whether it has its initial values, and is not sent
  std::optional<Stale> stale_;
  std::uint64_t cursor_ = 0;  // the position after the last answered one
};

// Reads rows of a table in memory. A row that was not trained in the wanted life has its initial values, or the stored ones
// if the life continues an earlier one.
class ExactReader {
 public:
  explicit ExactReader(const RowTable& table) : table_(table) {}

  FoundRow operator()(std::uint64_t id, std::int64_t wanted, std::uint8_t* out, std::size_t bytes) const {
    const std::int64_t birth = at_birth(wanted);
    std::int64_t version = 0;
    bool read = false;
    table_.look_up(id, [&](std::int64_t stored, const std::byte* floats) {
      version = stored;
      read = stored > birth ? stored == wanted : stored > 0 && birth == wanted && continues(birth);
      if (read) std::memcpy(out, floats, bytes);
    });
    if (version > birth) return {version, false};
    return {birth, birth == wanted && !read};
  }

 private:
  const RowTable& table_;
};

}  // namespace esd::rows
