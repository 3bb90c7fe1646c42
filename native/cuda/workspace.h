// A problem in integers and the memory that a team of threads solves it in.
//
// The Board holds the values that all threads read between steps. It is small, so that it fits into shared memory if
// one block works alone. The Workspace refers to all arrays with an entry per row or group; they are in global memory.
#pragma once

#include "common/host_device.h"
#include "common/workers.h"
#include "cuda/scan.h"

namespace esd {

constexpr int kDigits = 32;  // values of a digit of the line search in the dual ascent

// The largest value of a signed integer type.
template <typename T>
constexpr T kLargest = static_cast<T>((std::uint64_t{1} << (sizeof(T) * 8 - 1)) - 1);

template <typename T, typename Set>
struct Board {
  std::int64_t largest_lead;
  std::int64_t gap;                       // cost minus dual bound
  T prices[kMaxWorkers];                  // of the Hungarian algorithm until it ends: the duals of the columns
  T distances[kMaxWorkers];               // from the first worker, see canonical_answer.h
  T exchange[kMaxWorkers * kMaxWorkers];  // [workers][workers], see canonical_answer.h
  T step;                                 // the least uncovered entry
  Set levels[kMaxWorkers + 1];            // the workers at each distance from one with room
  Set found_workers;                      // the workers that a step has found
  int capacities[kMaxWorkers];
  int starts[kMaxWorkers];      // the sums of the capacities of the workers before
  int load[kMaxWorkers];        // the rows at each worker; of the Hungarian algorithm: the free copies of a column
  int exits[kMaxWorkers];       // the rows that can leave each column
  int taken[kMaxWorkers];       // how many of them a path has taken
  int digits[kDigits];          // a histogram of leads
  int sums[2 * kBlockThreads];  // scratch of scan()
  int changed;                  // 1 when some thread found what the step looks for
  int groups;                   // how many groups have rows
};

template <typename T, typename Set>
struct Workspace {
  int rows, workers;
  const T* costs;  // [rows][workers]
  Set active;      // workers with capacity; the others never hold a row
  Board<T, Set>* board;

  // Per row.
  T* converted;    // [rows][workers], the costs in fixed point where the caller's do not serve
  T* low;          // [rows], the least cost + price
  T* lead;         // [rows], how much dearer a violated set must become before the row leaves it
  T* duals;        // [rows], of the Hungarian algorithm
  Set* tight;      // [rows], the workers that reach `low`
  int* slot_of;    // [rows], where the row's group is in the table
  int* worker_of;  // [rows]
  int* prime;      // [rows], the column of the row's prime
  int* next;       // [rows], the row that follows on an alternating path
  int* covered;    // [rows], 1 where the row is covered
  int* exit_rows;  // [rows], the rows that can leave each column, from board->starts on

  // Groups of rows with the same tight workers, by their slot in a table.
  int slots;
  bool direct;    // With few workers a group's slot is the word of its set; otherwise it is found by hashing.
  Set* keys;      // [slots], empty where the slot is free
  int* counts;    // [slots], the group's rows
  int* position;  // [slots], the group's place in the list

  // The list of the groups that have rows.
  Set* group_tight;    // [slots], the tight workers of each group
  int* origin;         // [slots], the slot of each group
  int* sizes;          // [slots], the rows of each group
  int* left;           // [slots], the rows of each group that are not placed yet
  Set* users;          // [slots], the workers with rows of the group
  int* shared_groups;  // [slots], the groups with rows at several workers
  int* placed;         // [groups][workers], the rows of a group at a worker

  ESD_HD T cost(int row, int worker) const { return costs[static_cast<std::ptrdiff_t>(row) * workers + worker]; }
  ESD_HD int& at(int group, int worker) const { return placed[static_cast<std::ptrdiff_t>(group) * workers + worker]; }
};

// Hands out consecutive pieces of one allocation.
class BumpAllocator {
 public:
  explicit ESD_HD BumpAllocator(char* base) : base_(reinterpret_cast<std::uint64_t>(base)) {}

  template <typename E>
  ESD_HD E* take(std::int64_t count) {
    E* piece = reinterpret_cast<E*>(base_ + used_);
    used_ += (static_cast<std::uint64_t>(count) * sizeof(E) + 255) / 256 * 256;
    return piece;
  }

  ESD_HD std::int64_t used() const { return static_cast<std::int64_t>(used_); }

 private:
  std::uint64_t base_, used_ = 0;
};

// Lays a workspace out from `memory` on. Returns the bytes that it takes; a null `memory` only counts them.
template <typename T, typename Set>
ESD_HD std::int64_t lay_out(Workspace<T, Set>& work, char* memory, int rows, int workers) {
  int hashed = 64;
  while (hashed < 2 * rows) hashed *= 2;
  work.direct = workers < 31 && (1 << workers) <= hashed;
  work.slots = work.direct ? 1 << workers : hashed;
  const int groups = work.direct && work.slots < rows ? work.slots : rows;
  work.rows = rows;
  work.workers = workers;

  BumpAllocator pieces(memory);
  const std::int64_t entries = static_cast<std::int64_t>(rows) * workers;
  work.converted = pieces.take<T>(entries);
  work.low = pieces.take<T>(rows);
  work.lead = pieces.take<T>(rows);
  work.duals = pieces.take<T>(rows);
  work.tight = pieces.take<Set>(rows);
  work.slot_of = pieces.take<int>(rows);
  work.worker_of = pieces.take<int>(rows);
  work.prime = pieces.take<int>(rows);
  work.next = pieces.take<int>(rows);
  work.covered = pieces.take<int>(rows);
  work.exit_rows = pieces.take<int>(rows);
  work.keys = pieces.take<Set>(work.slots);
  work.counts = pieces.take<int>(work.slots);
  work.position = pieces.take<int>(work.slots);
  work.group_tight = pieces.take<Set>(work.slots);
  work.origin = pieces.take<int>(work.slots);
  work.sizes = pieces.take<int>(work.slots);
  work.left = pieces.take<int>(work.slots);
  work.users = pieces.take<Set>(work.slots);
  work.shared_groups = pieces.take<int>(work.slots);
  work.placed = pieces.take<int>(static_cast<std::int64_t>(groups) * workers);
  return pieces.used();
}

// The workers of `among` for which `holds`.
template <typename Set, typename Holds>
ESD_HD Set workers_where(Set among, Holds holds) {
  Set found{};
  among.for_each([&](int j) {
    if (holds(j)) found.add(j);
  });
  return found;
}

}  // namespace esd
