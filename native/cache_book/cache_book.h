// The book-keeping of a worker's cache: which row is in which slot, and whether a plan fits.
//
// Every table of the job has slots of its own. With several, the top 8 bits of an id are the number of its table
// (services/domain/ids.py).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/worker_sets.h"

namespace esd::cache_book {

enum class SlotState : std::uint8_t {
  kEmpty,
  kClean,    // a row that the parameter server has too; others may have outdated it since
  kOwned,    // the only copy of the row's latest value
  kPartial,  // this worker's gradient of a split row
  kSpent,    // a gradient that has been pushed: the slot is kept for its row, which must be pulled to be used
};

// A plan that does not fit; the book is as it was.
struct Misfit : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Columns of rows, [count].
struct Rows {
  const std::uint64_t* ids;
  const std::uint32_t* slots;
  const std::int64_t* versions;
  std::size_t count;
};

struct Gradients {
  Rows rows;
  WorkerSets contributors;
};

// The changes of a plan to the cache, in this order; evictions and updates are pushes.
struct PlanColumns {
  Rows discards, update_rows;
  Gradients update_gradients;
  Rows evict_rows;
  Gradients evict_gradients;
  Rows drops, pulls;
  Gradients trained;             // the rows that are trained, with their versions before
  const std::uint32_t* reduced;  // their places in `trained`, ascending
  std::size_t reduced_count;
};

class CacheBook {
 public:
  // `limits` are the slots that each table may use. Where copies are kept, a worker trains its copies also if others train
  // the rows, and continues to use them after its gathered gradients are pushed.
  CacheBook(const std::vector<std::size_t>& limits, unsigned worker, bool keeps_copies)
      : worker_(worker), keeps_copies_(keeps_copies) {
    for (const std::size_t limit : limits) tables_.push_back({limit, {}});
    if (limits.size() == 1) tables_[0].slots.resize(limits[0]);
  }

  std::size_t size() const;
  std::size_t cached() const { return cached_; }
  // The content of the slots, [size], table by table.
  void copy_to(std::uint64_t* ids, std::int64_t* versions, std::uint8_t* states) const;

  // Enter a plan, a flush, or the reload at the beginning of an epoch, all or nothing. `where` begins the
  // text of a misfit. Throw Misfit.
  void enter(const PlanColumns& plan, const std::string& where);
  void enter_flush(const Rows& rows, const Gradients& gradients, const std::string& where);
  void enter_reload(const Rows& rows, const Rows& outdated);

 private:
  struct Slot {
    std::uint64_t id = 0;
    std::int64_t version = 0;
    SlotState state = SlotState::kEmpty;
    std::uint32_t named_in = 0;  // the latest list that has named the slot
  };
  struct Table {
    std::size_t limit;
    std::vector<Slot> slots;  // with one table all slots, otherwise the slots used so far
  };
  struct Change {
    std::uint64_t id;
    std::uint32_t slot;
    Slot before;
  };

  // The steps of a plan. Each checks a row, then enters it.
  void push(const Rows& rows, SlotState before, SlotState after, const char* step);
  void push(const Gradients& gradients, SlotState after, const char* step);
  void push_gathered(const Gradients& gradients, SlotState after, const char* step);
  SlotState pushed_gradient() const { return keeps_copies_ ? SlotState::kClean : SlotState::kSpent; }
  void discard(const Rows& rows);
  void drop(const Rows& rows);
  void pull(const Rows& rows);
  void train(const PlanColumns& plan);

  void begin(const std::string& where);
  void check_slots(std::initializer_list<const Rows*> list);
  void check_contributor(const Gradients& gradients, std::size_t row, const char* step) const;
  std::size_t table_of(std::uint64_t id) const { return tables_.size() == 1 ? 0 : id >> 56; }
  Slot& slot_of(const Rows& rows, std::size_t row) { return tables_[table_of(rows.ids[row])].slots[rows.slots[row]]; }
  Slot& change(const Rows& rows, std::size_t row);
  void set_state(Slot& slot, SlotState state);
  void roll_back();
  [[noreturn]] void refuse(const std::string& expectation, const Rows& rows, std::size_t row) const;
  std::string slot_text(std::size_t table, std::uint32_t slot) const;
  std::string holding(std::size_t table, std::uint32_t slot) const;

  std::vector<Table> tables_;
  const unsigned worker_;
  const bool keeps_copies_;
  std::size_t cached_ = 0, unpushed_ = 0;  // slots in use; of these, owned and partial ones
  std::uint32_t list_ = 0;
  std::string where_;
  std::vector<Change> changed_;
};

}  // namespace esd::cache_book
