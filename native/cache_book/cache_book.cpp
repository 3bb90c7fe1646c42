#include "cache_book/cache_book.h"

#include <cinttypes>
#include <cstdio>

namespace esd::cache_book {
namespace {

const char* name_of(SlotState state) {
  switch (state) {
    case SlotState::kEmpty: return "empty";
    case SlotState::kClean: return "clean";
    case SlotState::kOwned: return "owned";
    case SlotState::kPartial: return "partial";
    case SlotState::kSpent: return "spent";
  }
  return "";
}

std::string row_text(const Rows& rows, std::size_t row) { return "id " + std::to_string(rows.ids[row]); }

std::string hexadecimal(WideWorkerSet workers) {
  const auto high = static_cast<std::uint64_t>(workers.bits >> 64), low = static_cast<std::uint64_t>(workers.bits);
  char text[40];
  if (high == 0) {
    std::snprintf(text, sizeof text, "0x%" PRIx64, low);
  } else {
    std::snprintf(text, sizeof text, "0x%" PRIx64 "%016" PRIx64, high, low);
  }
  return text;
}

bool unpushed(SlotState state) { return state == SlotState::kOwned || state == SlotState::kPartial; }

}  // namespace

void CacheBook::enter(const PlanColumns& plan, const std::string& where) {
  begin(where);
  try {
    for (const Rows* rows :
         {&plan.update_rows, &plan.update_gradients.rows, &plan.evict_rows, &plan.evict_gradients.rows, &plan.discards,
          &plan.drops, &plan.pulls, &plan.trained.rows}) {
      check_slots({rows});
    }
    discard(plan.discards);
    push(plan.update_rows, SlotState::kOwned, SlotState::kClean, "update push");
    push(plan.update_gradients, pushed_gradient(), "update push");
    push(plan.evict_rows, SlotState::kOwned, SlotState::kEmpty, "evict push");
    push(plan.evict_gradients, SlotState::kEmpty, "evict push");
    drop(plan.drops);
    pull(plan.pulls);
    train(plan);
  } catch (const Misfit&) {
    roll_back();
    throw;
  }
}

void CacheBook::enter_flush(const Rows& rows, const Gradients& gradients, const std::string& where) {
  begin(where);
  try {
    check_slots({&rows});
    check_slots({&gradients.rows});
    push(rows, SlotState::kOwned, SlotState::kClean, "flush");
    push(gradients, pushed_gradient(), "flush");
    for (std::size_t table = 0; unpushed_ > 0; ++table) {
      const std::vector<Slot>& slots = tables_[table].slots;
      const auto left = std::find_if(slots.begin(), slots.end(), [](const Slot& slot) { return unpushed(slot.state); });
      if (left == slots.end()) continue;
      throw Misfit("flush: the plan leaves " + std::to_string(unpushed_) +
                   " unpushed rows behind, first: " + holding(table, static_cast<std::uint32_t>(left - slots.begin())));
    }
  } catch (const Misfit&) {
    roll_back();
    throw;
  }
}

void CacheBook::enter_reload(const Rows& rows, const Rows& outdated) {
  begin("");
  check_slots({&rows, &outdated});
  if (cached_ > 0) {
    throw Misfit("a reload is for an empty cache, this one holds " + std::to_string(cached_) + " rows");
  }
  for (const auto& [part, state] : {std::pair{&rows, SlotState::kClean}, {&outdated, SlotState::kSpent}}) {
    for (std::size_t i = 0; i < part->count; ++i) {
      Slot& slot = slot_of(*part, i);
      slot.id = part->ids[i];
      slot.version = part->versions[i];
      set_state(slot, state);
    }
  }
}

void CacheBook::copy_to(std::uint64_t* ids, std::int64_t* versions, std::uint8_t* states) const {
  for (const Table& table : tables_) {
    for (const Slot& slot : table.slots) {
      *ids++ = slot.id;
      *versions++ = slot.version;
      *states++ = static_cast<std::uint8_t>(slot.state);
    }
  }
}

std::size_t CacheBook::size() const {
  std::size_t size = 0;
  for (const Table& table : tables_) size += table.slots.size();
  return size;
}

void CacheBook::push(const Rows& rows, SlotState before, SlotState after, const char* step) {
  for (std::size_t i = 0; i < rows.count; ++i) {
    Slot& slot = change(rows, i);
    if (slot.id != rows.ids[i] || slot.version != rows.versions[i] || slot.state != before) {
      refuse(std::string(step) + ": " + row_text(rows, i) + " at version " + std::to_string(rows.versions[i]) + ", " +
                 name_of(before),
             rows, i);
    }
    set_state(slot, after);
  }
}

void CacheBook::push(const Gradients& gradients, SlotState after, const char* step) {
  if (keeps_copies_) return push_gathered(gradients, after, step);
  push(gradients.rows, SlotState::kPartial, after, step);
  for (std::size_t i = 0; i < gradients.rows.count; ++i) check_contributor(gradients, i, step);
}

// What was gathered on a copy makes a later version, by which the copy is known from then on.
void CacheBook::push_gathered(const Gradients& gradients, SlotState after, const char* step) {
  const Rows& rows = gradients.rows;
  for (std::size_t i = 0; i < rows.count; ++i) {
    Slot& slot = change(rows, i);
    if (slot.id != rows.ids[i] || slot.version >= rows.versions[i] || slot.state != SlotState::kPartial) {
      refuse(std::string(step) + ": " + row_text(rows, i) + " before version " + std::to_string(rows.versions[i]) +
                 ", " + name_of(SlotState::kPartial),
             rows, i);
    }
    check_contributor(gradients, i, step);
    slot.version = rows.versions[i];
    set_state(slot, after);
  }
}

void CacheBook::discard(const Rows& rows) {
  for (std::size_t i = 0; i < rows.count; ++i) {
    Slot& slot = change(rows, i);
    if (slot.id != rows.ids[i] || slot.state == SlotState::kEmpty) {
      refuse("discard: " + row_text(rows, i), rows, i);
    }
    set_state(slot, SlotState::kEmpty);
  }
}

void CacheBook::drop(const Rows& rows) {
  for (std::size_t i = 0; i < rows.count; ++i) {
    Slot& slot = change(rows, i);
    if (slot.id != rows.ids[i] || slot.state == SlotState::kEmpty || unpushed(slot.state)) {
      refuse("drop: " + row_text(rows, i) + " with nothing unpushed", rows, i);
    }
    set_state(slot, SlotState::kEmpty);
  }
}

void CacheBook::pull(const Rows& rows) {
  for (std::size_t i = 0; i < rows.count; ++i) {
    Slot& slot = change(rows, i);
    const bool renewed = slot.state == SlotState::kClean && slot.version <= rows.versions[i];
    const bool waits = slot.id == rows.ids[i] && (slot.state == SlotState::kSpent || renewed);
    if (slot.state != SlotState::kEmpty && !waits) {
      refuse("pull of " + row_text(rows, i) + " version " + std::to_string(rows.versions[i]) +
                 ": an empty slot or a copy that is not newer",
             rows, i);
    }
    slot.id = rows.ids[i];
    slot.version = rows.versions[i];
    set_state(slot, SlotState::kClean);
  }
}

// The only contributor of a replicated row is the worker that owns it on behalf of all; the copies of the others are as
// if the parameter server had it.
void CacheBook::train(const PlanColumns& plan) {
  const Gradients& trained = plan.trained;
  const Rows& rows = trained.rows;
  const std::uint32_t *next = plan.reduced, *const end = next + plan.reduced_count;
  const auto alone = WideWorkerSet::only(static_cast<int>(worker_));
  for (std::size_t i = 0; i < rows.count; ++i) {
    Slot& slot = change(rows, i);
    const bool usable =
        slot.state == SlotState::kClean || slot.state == (keeps_copies_ ? SlotState::kPartial : SlotState::kOwned);
    if (slot.id != rows.ids[i] || slot.version != rows.versions[i] || !usable) {
      refuse("training: " + row_text(rows, i) + " at version " + std::to_string(rows.versions[i]), rows, i);
    }
    const bool replicated = next < end && *next == i;
    next += replicated;
    if (!replicated) check_contributor(trained, i, "training");
    if (keeps_copies_) {
      set_state(slot, SlotState::kPartial);
      continue;
    }
    slot.version += 1;
    const SlotState shared = replicated ? SlotState::kClean : SlotState::kPartial;
    set_state(slot, trained.contributors[i] == alone ? SlotState::kOwned : shared);
  }
}

void CacheBook::begin(const std::string& where) {
  where_ = where;
  changed_.clear();
}

// Slots must lie in the cache of their row's table, and may be named only once in the lists together.
void CacheBook::check_slots(std::initializer_list<const Rows*> lists) {
  if (++list_ == 0) {  // after 2^32 lists: nothing may look as if this one had named it
    for (Table& table : tables_) {
      for (Slot& slot : table.slots) slot.named_in = 0;
    }
    list_ = 1;
  }
  for (const Rows* rows : lists) {
    for (std::size_t i = 0; i < rows->count; ++i) {
      const std::size_t number = table_of(rows->ids[i]);
      const std::uint32_t slot = rows->slots[i];
      if (number >= tables_.size()) {
        throw Misfit(row_text(*rows, i) + " is of table " + std::to_string(number) + ", there are " +
                     std::to_string(tables_.size()));
      }
      Table& table = tables_[number];
      if (slot >= table.limit) {
        throw Misfit(slot_text(number, slot) + " does not exist: the cache has room for " +
                     std::to_string(table.limit) + " rows");
      }
      if (slot >= table.slots.size()) {
        table.slots.resize(std::min(table.limit, std::max<std::size_t>(slot + 1, 2 * table.slots.size())));
      }
      if (table.slots[slot].named_in == list_) {
        throw Misfit(slot_text(number, slot) + " is named twice in one list of the plan");
      }
      table.slots[slot].named_in = list_;
    }
  }
}

void CacheBook::check_contributor(const Gradients& gradients, std::size_t row, const char* step) const {
  if (gradients.contributors[row].contains(static_cast<int>(worker_))) return;
  throw Misfit(std::string(step) + " of " + row_text(gradients.rows, row) + ": contributors " +
               hexadecimal(gradients.contributors[row]) + " do not include this worker (slot " +
               std::to_string(worker_) + ")");
}

// Returns a slot that is about to change, and remembers what it was.
CacheBook::Slot& CacheBook::change(const Rows& rows, std::size_t row) {
  Slot& slot = slot_of(rows, row);
  changed_.push_back({rows.ids[row], rows.slots[row], slot});
  return slot;
}

void CacheBook::set_state(Slot& slot, SlotState state) {
  cached_ += (state != SlotState::kEmpty) - (slot.state != SlotState::kEmpty);
  unpushed_ += unpushed(state) - unpushed(slot.state);
  slot.state = state;
}

void CacheBook::roll_back() {
  for (; !changed_.empty(); changed_.pop_back()) {
    Change& last = changed_.back();
    Slot& slot = tables_[table_of(last.id)].slots[last.slot];
    set_state(slot, last.before.state);
    last.before.named_in = slot.named_in;
    slot = last.before;
  }
}

void CacheBook::refuse(const std::string& expectation, const Rows& rows, std::size_t row) const {
  throw Misfit(where_ + ", " + expectation + " expected, but " + holding(table_of(rows.ids[row]), rows.slots[row]));
}

std::string CacheBook::slot_text(std::size_t table, std::uint32_t slot) const {
  const std::string text = "slot " + std::to_string(slot);
  return tables_.size() == 1 ? text : text + " of table " + std::to_string(table);
}

std::string CacheBook::holding(std::size_t table, std::uint32_t slot) const {
  const Slot& held = tables_[table].slots[slot];
  const std::string text = slot_text(table, slot);
  if (held.state == SlotState::kEmpty) return text + " is empty";
  return text + " holds id " + std::to_string(held.id) + " at version " + std::to_string(held.version) + ", " +
         name_of(held.state);
}

}  // namespace esd::cache_book
