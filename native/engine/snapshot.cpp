// The engine's state as bytes: a header, all rows, all caches, and a checksum of everything before it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/mix64.h"
#include "engine/engine.h"
#include "engine/memory/huge_pages.h"
#include "engine/rows/copies.h"
#include "engine/rows/index_types.h"
#include "engine/rows/row_state.h"
#include "engine/rows/state_index.h"

namespace esd {
namespace {

constexpr char kMagicOfFew[8] = {'E', 'S', 'D', 'E', 'N', 'G', '0', '7'};   // of engines for up to 64 workers
constexpr char kMagicOfMany[8] = {'E', 'S', 'D', 'E', 'N', 'G', 'W', '7'};  // of engines for more
constexpr char kMagicBefore[8] = {'E', 'S', 'D', 'E', 'N', 'G', '0', '6'};  // of engines that released no row
constexpr bool kFew = kMaxWorkers <= 64;
constexpr const auto& kMagic = kFew ? kMagicOfFew : kMagicOfMany;
constexpr const auto& kMagicOther = kFew ? kMagicOfMany : kMagicOfFew;

template <std::size_t Length>
bool begins_with(const char* data, std::size_t size, const char (&magic)[Length]) {
  return size >= Length && std::memcmp(data, magic, Length) == 0;
}

// Counts the bytes that a `Writer` will write.
class Counter {
 public:
  template <typename T>
  void put(const T&) {
    size_ += sizeof(T);
  }
  template <typename T>
  void put_block(const T*, std::size_t count) {
    size_ += sizeof(std::uint64_t) + count * sizeof(T);
  }
  std::size_t size() const { return size_; }

 private:
  std::size_t size_ = 0;
};

class Writer {
 public:
  explicit Writer(char* at) : at_(at) {}

  template <typename T>
  void put(const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    write(&value, sizeof value);
  }
  template <typename T>
  void put_block(const T* values, std::size_t count) {
    put(std::uint64_t{count});
    write(values, count * sizeof(T));
  }

 private:
  void write(const void* bytes, std::size_t size) {
    if (size > 0) std::memcpy(at_, bytes, size);
    at_ += size;
  }

  char* at_;
};

class Reader {
 public:
  Reader(const char* data, std::size_t size) : data_(data), left_(size) {}

  template <typename T>
  T get() {
    T value;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  template <typename Block>
  Block get_block() {
    constexpr std::size_t kSize = sizeof(typename Block::value_type);
    const auto count = get<std::uint64_t>();
    if (count > left_ / kSize) throw std::invalid_argument("the snapshot is cut short");
    Block block;
    block.resize(count);
    if (count > 0) std::memcpy(block.data(), take(count * kSize), count * kSize);
    return block;
  }

 private:
  const char* take(std::size_t size) {
    if (size > left_) throw std::invalid_argument("the snapshot is cut short");
    const char* data = data_;
    data_ += size;
    left_ -= size;
    return data;
  }

  const char* data_;
  std::size_t left_;
};

std::uint64_t checksum(const char* data, std::size_t size) {
  std::uint64_t sum = mix64(size);
  for (; size >= 8; data += 8, size -= 8) {
    std::uint64_t word;
    std::memcpy(&word, data, 8);
    sum = mix64(sum ^ word) + word;
  }
  for (; size > 0; ++data, --size) sum = mix64(sum ^ static_cast<unsigned char>(*data));
  return sum;
}

struct SavedCopy {
  SlotIndex slot;
  Copy copy;
};

// Copies of pinned rows are in no order.
template <typename Out>
void save_cache(const CacheMirror& cache, const StateIndex& index, Out& out) {
  Slots order;
  cache.policy->list(order);
  const auto ordered = static_cast<std::uint32_t>(order.size());
  for (SlotIndex slot = 0; slot < cache.slots(); ++slot) {
    const RowNumber row = cache.copies[slot].row;
    if (row != kNoRow && index[row].pinned) order.push_back(slot);
  }
  out.put(cache.policy->counter());
  for (const Slots& vacant : cache.vacant) out.put_block(vacant.data(), vacant.size());
  out.put_block(cache.table_slots().data(), cache.table_slots().size());
  out.put(cache.filled);
  out.put(ordered);
  out.put(std::uint32_t(order.size()));
  for (const SlotIndex slot : order) out.put(SavedCopy{slot, cache.copies[slot]});
}

void load_cache(CacheMirror& cache, Reader& in) {
  cache.policy->set_counter(in.get<std::uint32_t>());
  std::size_t slots = 0;
  for (Slots& vacant : cache.vacant) {
    vacant = in.get_block<Slots>();
    slots += vacant.size();
  }
  auto slots_of_tables = in.get_block<Slots>();
  cache.filled = in.get<std::uint64_t>();
  const auto ordered = in.get<std::uint32_t>(), rows = in.get<std::uint32_t>();
  cache.copies.resize(rows + slots);
  for (std::size_t table = 0; table < cache.vacant.size(); ++table) {
    for (const SlotIndex slot : cache.vacant[table]) {
      cache.copies[slot].row = kNoRow;
      cache.copies[slot].table = static_cast<TableNumber>(table);
    }
  }
  for (std::uint32_t i = 0; i < rows; ++i) {
    const auto saved = in.get<SavedCopy>();
    cache.copies[saved.slot] = saved.copy;
    if (i < ordered) cache.policy->append(saved.slot);
  }
  cache.restore_table_slots(std::move(slots_of_tables));
}

template <typename Out>
void save_directory(const CopyDirectory& directory, Out& out) {
  out.put_block(directory.records().data(), directory.records().size());
  out.put_block(directory.free_records().data(), directory.free_records().size());
}

void load_directory(CopyDirectory& directory, Reader& in) {
  auto records = in.get_block<HugeVector<unsigned char>>();
  auto free_records = in.get_block<std::vector<std::uint32_t>>();
  directory.restore(std::move(records), std::move(free_records));
}

// A row as snapshots before had it, which also had one for every unused number.
struct RowStateBefore {
  std::uint64_t id;
  std::uint64_t holders;
  std::uint32_t version : 30;
  std::uint32_t kind : 2;
  std::uint32_t last_use;
  std::uint32_t location : 8;
  std::uint32_t pinned : 1;
  std::uint32_t life : 23;
  std::uint32_t slot;
};

RowState present_form(const RowStateBefore& row) {
  const std::uint32_t trainings = std::min<std::uint32_t>(row.version, kManyTrainings);
  return {row.id,    WorkerSet{row.holders}, row.version, row.kind, row.last_use,
          trainings, row.location,           row.pinned,  row.life, row.slot};
}

// A row as the engine for another number of workers has it: its sets of workers have another width.
__extension__ using WiderBits = unsigned __int128;
using OtherBits = std::conditional_t<kFew, WiderBits, std::uint64_t>;
struct OtherRowState {
  std::uint64_t id;
  OtherBits holders;
  std::uint32_t version : 30;
  std::uint32_t kind : 2;
  std::uint32_t last_use : 28;
  std::uint32_t trainings : 4;
  std::uint32_t location : 8;
  std::uint32_t pinned : 1;
  std::uint32_t life : 23;
  std::uint32_t slot;
};
static_assert(sizeof(OtherRowState) + sizeof(RowState) == 32 + 48);

// Its workers are not the engine's, which takes it without their copies.
RowState present_form(const OtherRowState& row) {
  return {row.id, {}, row.version, row.kind, row.last_use, row.trainings, kNowhere, 0, row.life, 0};
}

template <typename Out>
void save_rows(const StateIndex& index, Out& out) {
  out.put(index.size());
  out.put_block(index.unused().data(), index.unused().size());
  for (RowNumber row = 0; row < index.size(); ++row) {
    if (index[row].location != kUnused) out.put(index[row]);
  }
}

// `read()` returns the state of the next row.
template <typename Read>
void add_rows(StateIndex& index, RowNumber count, const std::vector<RowNumber>& unused, Read read) {
  std::vector<bool> is_gap(count);
  for (const RowNumber row : unused) is_gap.at(row) = true;
  for (RowNumber i = 0; i < count; ++i) {
    if (is_gap[i]) {
      index.add_gap();
    } else {
      const RowState row = read();
      index[index.find_or_add(row.id)] = row;
    }
  }
}

// `read()` returns the state of the next row.
template <typename Read>
void load_rows(StateIndex& index, Reader& in, Read read) {
  const auto count = in.get<RowNumber>();
  auto unused = in.get_block<std::vector<RowNumber>>();
  add_rows(index, count, unused, read);
  index.restore_unused(std::move(unused));
}

void load_rows_before(StateIndex& index, Reader& in) {
  std::vector<RowStateBefore> rows(in.get<RowNumber>());
  for (RowStateBefore& row : rows) row = in.get<RowStateBefore>();
  auto unused = in.get_block<std::vector<RowNumber>>();
  std::size_t at = 0;
  add_rows(index, static_cast<RowNumber>(rows.size()), unused, [&] {
    while (rows[at].location == kUnused) ++at;
    return present_form(rows[at++]);
  });
  index.restore_unused(std::move(unused));
}

// Takes a row as the parameter server has it, cached by no worker.
void forget_copies(RowState& row) {
  if (row.kind == kOwned || row.kind == kSplit) {
    throw std::invalid_argument("the snapshot was not taken after a flush, so its caches are needed");
  }
  row.kind = kClean;
  row.holders = {};
  row.location = kNowhere;
  row.pinned = 0;
}

}  // namespace

// Where the snapshot does not have all rows that no worker caches, their last copies count as just gone.
void Engine::load_uncached(std::vector<UncachedRow>&& saved, bool complete) {
  state_.uncached.restore(complete ? std::move(saved) : std::vector<UncachedRow>());
  for (RowNumber row = 0; !complete && row < state_.index.size(); ++row) {
    if (state_.index[row].location == kNowhere) state_.uncached.add(row, state_.index[row], state_.iteration);
  }
}

void Engine::snapshot(const Room& room) { save(sync_->save(), room); }

std::string Engine::snapshot() { return save(sync_->save()); }

// The part of the way is empty in its state: the copy has all of it.
Engine::Savepoint Engine::savepoint() { return {save({}), sync_->clone()}; }

void Engine::roll_back(const Savepoint& before) {
  load(before.state.data(), before.state.size(), true);
  sync_ = before.sync->clone();
}

void Engine::restore(const char* data, std::size_t size, bool warm) { sync_->restore(load(data, size, warm)); }

std::string Engine::save(const SavedSync& saved) {
  std::string bytes;
  save(saved, [&](std::size_t size) {
    bytes.resize(size);
    return bytes.data();
  });
  return bytes;
}

// The state is read twice, since a buffer that grows would take twice the memory.
void Engine::save(const SavedSync& saved, const Room& room) {
  const bool prepared = prepared_;
  check_in();
  const std::vector<UncachedRow> uncached = state_.uncached.records();
  const auto write = [&](auto& out) {
    out.put(kMagic);
    out.put_block(state_.policy.data(), state_.policy.size());
    out.put_block(state_.cache_sizes.data(), state_.cache_sizes.size());
    out.put_block(state_.sizes.of_tables().data(), state_.sizes.of_tables().size());
    out.put(state_.iteration);
    out.put(lookups_);
    out.put(hits_);
    out.put(reuse_);
    out.put(lives_.present());
    save_rows(state_.index, out);
    out.put_block(uncached.data(), uncached.size());
    out.put_block(memory_.entries().data(), memory_.entries().size());
    out.put_block(state_.hot_rows.flags().data(), state_.hot_rows.flags().size());
    out.put(saved.workers);
    out.put(saved.flushed);
    out.put_block(saved.heat.data(), saved.heat.size());
    out.put_block(saved.flags.data(), saved.flags.size());
    out.put_block(history_.trainings().data(), history_.trainings().size());
    for (const auto& cache : state_.caches) save_cache(*cache, state_.index, out);
    save_directory(state_.directory, out);
  };
  Counter counter;
  write(counter);
  char* const bytes = room(counter.size() + sizeof(std::uint64_t));
  Writer out(bytes);
  write(out);
  if (prepared) check_out();
  out.put(checksum(bytes, counter.size()));
}

// The checksum vouches for what follows the header; the header decides whether the snapshot is of such an engine.
SavedSync Engine::load(const char* data, std::size_t size, bool warm) {
  constexpr std::size_t kSum = sizeof(std::uint64_t);
  const bool before = begins_with(data, size, kMagicBefore), other = begins_with(data, size, kMagicOther);
  if (size < sizeof kMagic + kSum || !(before || other || begins_with(data, size, kMagic))) {
    throw std::invalid_argument("not a snapshot of a dispatch engine of this version");
  }
  std::uint64_t sum;
  std::memcpy(&sum, data + size - kSum, kSum);
  if (sum != checksum(data, size - kSum)) throw std::invalid_argument("the snapshot is damaged: its checksum differs");

  Reader in(data + sizeof kMagic, size - sizeof kMagic - kSum);
  const std::string policy = in.get_block<std::string>();
  if (warm && policy != state_.policy) {
    throw std::invalid_argument("the snapshot is of cache policy " + policy + ", this engine has " + state_.policy);
  }
  const auto cache_sizes = in.get_block<std::vector<std::uint32_t>>();
  if (warm && cache_sizes != state_.cache_sizes) {
    throw std::invalid_argument("the snapshot is of " + std::to_string(cache_sizes.size()) +
                                " workers with other caches than this engine's " +
                                std::to_string(state_.cache_sizes.size()));
  }
  if (in.get_block<std::vector<std::uint32_t>>() != state_.sizes.of_tables()) {
    throw std::invalid_argument("the snapshot is of tables with other row sizes than this engine's");
  }
  const auto iteration = in.get<std::uint32_t>();
  const auto lookups = in.get<std::uint64_t>();
  const auto hits = in.get<std::uint64_t>();
  const auto reuse = in.get<ReuseStatistics>();
  auto life = in.get<std::uint32_t>();
  if (before) life += life & 1;  // rows were born with their initial values in any life
  if (window_ == 0 && continues(life)) {
    throw std::invalid_argument(
        "the snapshot is of an engine that did not know all rows of the table any more, and a limit of rows or a time "
        "to live needs that: go on without max_rows (--max-rows) and without a row ttl (--row-ttl)");
  }
  StateIndex index;
  std::vector<UncachedRow> uncached;
  HugeVector<std::uint32_t> memory;
  if (before) {
    load_rows_before(index, in);
  } else {
    if (other) {
      load_rows(index, in, [&] { return present_form(in.get<OtherRowState>()); });
    } else {
      load_rows(index, in, [&] { return in.get<RowState>(); });
    }
    uncached = in.get_block<std::vector<UncachedRow>>();
    memory = in.get_block<HugeVector<std::uint32_t>>();
  }
  for (RowNumber row = 0; !warm && row < index.size(); ++row) {
    if (index[row].location != kUnused) forget_copies(index[row]);
  }
  state_.hot_rows.restore(in.get_block<std::vector<std::uint8_t>>());  // the policies of the caches look at it
  SavedSync saved;
  saved.workers = other ? WorkerSet{static_cast<WorkerBits>(in.get<OtherBits>())} : in.get<WorkerSet>();
  saved.flushed = in.get<std::uint32_t>();
  saved.heat = in.get_block<std::vector<std::uint32_t>>();
  saved.flags = in.get_block<std::vector<std::uint8_t>>();
  history_.restore(in.get_block<std::vector<std::uint32_t>>(), cache_sizes.size() == workers());
  auto caches = state_.make_caches();
  CopyDirectory directory(workers());
  if (warm) {
    for (const auto& cache : caches) load_cache(*cache, in);
    load_directory(directory, in);
  }
  state_.iteration = iteration;
  lookups_ = lookups;
  hits_ = hits;
  state_.index = std::move(index);
  load_uncached(std::move(uncached), warm && !before);
  memory_.restore(std::move(memory));
  reuse_ = reuse;
  lives_ = Lives(life);
  row_limit_.restore(state_.index);
  row_ttl_.restore(state_.index);
  state_.directory = std::move(directory);
  state_.caches = std::move(caches);
  prepared_ = false;
  return saved;
}

}  // namespace esd
