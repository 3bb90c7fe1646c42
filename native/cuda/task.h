// A problem in integers and the memory that its solve works in.
#pragma once

#include "cuda/scan.h"
#include "solver/hd.h"

namespace esd {

constexpr int kWorkers = 64;  // at most
constexpr int kDigits = 32;   // of the line search

// What all threads read between steps: small, in shared memory where one block works alone.
template <class T, class Mask>
struct Board {
  std::int64_t most;  // the largest lead
  std::int64_t gap;
  T prices[kWorkers];
  T distances[kWorkers];
  T exchange[kWorkers * kWorkers];
  T step;
  Mask levels[kWorkers + 1];
  Mask found;
  int capacities[kWorkers];
  int starts[kWorkers];  // sums of the capacities before
  int load[kWorkers];
  int exits[kWorkers];
  int taken[kWorkers];
  int digits[kDigits];
  int sums[2 * kBlockThreads];
  int changed;
  int groups;
};

// Places for k rows and n workers, in global memory. A row's group is the rows with the same tight workers.
template <class T, class Mask>
struct Task {
  int rows, workers;
  const T* costs;  // [rows][workers]
  Mask active;     // workers with capacity; the others never hold a row
  Board<T, Mask>* board;

  T* fixed;        // [rows][workers], costs in fixed point where the caller's do not serve
  T* low;          // [rows], least cost + price
  T* lead;         // [rows], how much dearer a violated set must become before the row leaves it
  T* duals;        // [rows], of the Hungarian algorithm
  Mask* tight;     // [rows], workers that reach `low`
  int* slot_of;    // [rows], where the row's group is in the table
  int* worker_of;  // [rows]
  int* prime;      // [rows]
  int* next;       // [rows]
  int* covered;    // [rows]
  int* exit_rows;  // [rows], by worker, from board->starts on

  int slots;      // of the table of groups
  bool direct;    // a group's slot is its mask: few workers
  Mask* keys;     // [slots], 0 where free
  int* counts;    // [slots], rows
  int* position;  // [slots], of the group
  Mask* masks;    // [table], tight workers of each group
  int* origin;    // [table], slot of each group
  int* sizes;     // [table], rows of each group
  int* left;      // [table]
  Mask* users;    // [table], workers with rows of the group
  int* splits;    // [table], groups with several
  int* placed;    // [groups][workers], rows of a group at a worker

  ESD_HD T cost(int row, int worker) const { return costs[static_cast<std::ptrdiff_t>(row) * workers + worker]; }
  ESD_HD int& at(int group, int worker) const { return placed[static_cast<std::ptrdiff_t>(group) * workers + worker]; }
};

// Hands out consecutive pieces of one allocation.
class Pieces {
 public:
  explicit ESD_HD Pieces(char* base) : base_(reinterpret_cast<std::uint64_t>(base)) {}

  template <class E>
  ESD_HD E* take(std::int64_t count) {
    E* piece = reinterpret_cast<E*>(base_ + used_);
    used_ += (static_cast<std::uint64_t>(count) * sizeof(E) + 255) / 256 * 256;
    return piece;
  }

  ESD_HD std::int64_t used() const { return static_cast<std::int64_t>(used_); }

 private:
  std::uint64_t base_, used_ = 0;
};

// Lays a task out from `memory` on. Returns the bytes it takes; a null `memory` only counts them.
template <class T, class Mask>
ESD_HD std::int64_t lay_out(Task<T, Mask>& task, char* memory, int rows, int workers) {
  int hashed = 64;
  while (hashed < 2 * rows) hashed *= 2;
  task.direct = workers < 31 && (1 << workers) <= hashed;
  task.slots = task.direct ? 1 << workers : hashed;
  const int groups = task.direct && task.slots < rows ? task.slots : rows;
  task.rows = rows;
  task.workers = workers;

  Pieces pieces(memory);
  const std::int64_t entries = static_cast<std::int64_t>(rows) * workers;
  task.fixed = pieces.take<T>(entries);
  task.low = pieces.take<T>(rows);
  task.lead = pieces.take<T>(rows);
  task.duals = pieces.take<T>(rows);
  task.tight = pieces.take<Mask>(rows);
  task.slot_of = pieces.take<int>(rows);
  task.worker_of = pieces.take<int>(rows);
  task.prime = pieces.take<int>(rows);
  task.next = pieces.take<int>(rows);
  task.covered = pieces.take<int>(rows);
  task.exit_rows = pieces.take<int>(rows);
  task.keys = pieces.take<Mask>(task.slots);
  task.counts = pieces.take<int>(task.slots);
  task.position = pieces.take<int>(task.slots);
  task.masks = pieces.take<Mask>(task.slots);
  task.origin = pieces.take<int>(task.slots);
  task.sizes = pieces.take<int>(task.slots);
  task.left = pieces.take<int>(task.slots);
  task.users = pieces.take<Mask>(task.slots);
  task.splits = pieces.take<int>(task.slots);
  task.placed = pieces.take<int>(static_cast<std::int64_t>(groups) * workers);
  return pieces.used();
}

// The workers of `set` one after another, ascending.
template <class Mask, class Body>
ESD_HD void for_workers(Mask set, Body body) {
  for (; set != 0; set &= set - 1) body(lowest_worker(set));
}

// The workers for which `holds`.
template <class Mask, class Holds>
ESD_HD Mask workers_where(Mask among, Holds holds) {
  Mask set = 0;
  for_workers(among, [&](int j) {
    if (holds(j)) set |= only<Mask>(j);
  });
  return set;
}

}  // namespace esd
