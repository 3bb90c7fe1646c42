// A concurrent binary min-heap with a lock per node: the yardstick of FRUGAL's experiment 4.
//
// It is the heap of Hunt, Michael, Parthasarathy and Scott (1996): an entry that rises carries its thread as a tag, so
// that it is found again when another thread has moved it, one that sinks holds the locks of a parent and its children,
// and the places of a level are filled in bit-reversed order, so that neighbours in time rise on different ways. Locks
// spin, and give the processor away after a while: threads may be more than cores. Nodes are locked from the root down.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

namespace esd {

class SpinLock {
 public:
  void lock() {
    for (int spins = 0; held_.exchange(true, std::memory_order_acquire); ++spins) {
      if (spins >= kSpins) std::this_thread::yield();
    }
  }
  void unlock() { held_.store(false, std::memory_order_release); }

 private:
  static constexpr int kSpins = 64;
  std::atomic<bool> held_{false};
};

class TreeHeap {
 public:
  struct Entry {
    std::uint32_t priority;
    std::uint32_t row;
  };

  explicit TreeHeap(std::size_t capacity) {
    while (places_ <= capacity) places_ *= 2;  // whole levels
    nodes_ = std::make_unique<Node[]>(places_);
  }

  // `thread` is the number of the caller, from 0. There must be room.
  void put(Entry entry, std::int32_t thread) {
    shape_.lock();
    std::size_t place = place_of(++size_);
    Node& leaf = nodes_[place];
    leaf.lock.lock();
    shape_.unlock();
    leaf.entry = entry;
    leaf.tag = thread;
    leaf.lock.unlock();
    while (place > 1) {
      Node &parent = nodes_[place / 2], &node = nodes_[place];
      parent.lock.lock();
      node.lock.lock();
      std::size_t next = place;
      if (parent.tag == kSettled && node.tag == thread) {
        if (node.entry.priority < parent.entry.priority) {
          swap_entries(node, parent);
          next = place / 2;
        } else {
          node.tag = kSettled;
          next = 0;
        }
      } else if (parent.tag == kEmpty) {
        next = 0;  // somebody has taken it out
      } else if (node.tag != thread) {
        next = place / 2;  // another entry that sank has pushed it up
      }
      node.lock.unlock();
      parent.lock.unlock();
      if (next == place) std::this_thread::yield();  // the parent still rises
      place = next;
    }
    if (place == 1) {
      Node& root = nodes_[1];
      root.lock.lock();
      if (root.tag == thread) root.tag = kSettled;
      root.lock.unlock();
    }
  }

  // Takes an entry of the lowest priority out, unless that is above `most`.
  std::optional<Entry> take(std::uint32_t most) {
    shape_.lock();
    if (size_ == 0) {
      shape_.unlock();
      return std::nullopt;
    }
    Node& root = nodes_[1];
    root.lock.lock();
    if (root.entry.priority > most) {
      root.lock.unlock();
      shape_.unlock();
      return std::nullopt;
    }
    const Entry taken = root.entry;
    const std::size_t last = place_of(size_--);
    if (last == 1) {
      root.tag = kEmpty;
      root.lock.unlock();
      shape_.unlock();
      return taken;
    }
    Node& leaf = nodes_[last];
    leaf.lock.lock();
    root.entry = leaf.entry;
    root.tag = kSettled;
    leaf.tag = kEmpty;
    leaf.lock.unlock();
    shape_.unlock();
    sink();
    return taken;
  }

 private:
  static constexpr std::int32_t kEmpty = -2, kSettled = -1;  // else the number of the thread whose entry rises

  struct Node {
    SpinLock lock;
    std::int32_t tag = kEmpty;
    Entry entry{};
  };

  static void swap_entries(Node& one, Node& other) {
    std::swap(one.entry, other.entry);
    std::swap(one.tag, other.tag);
  }

  // The place of the heap's n-th entry, n >= 1.
  static std::size_t place_of(std::size_t n) {
    const int bits = 63 - __builtin_clzll(n);
    std::size_t place = 1;
    for (int bit = 0; bit < bits; ++bit) place = 2 * place + (n >> bit & 1);
    return place;
  }

  // Lets the root's entry sink; its lock is held, and given back.
  void sink() {
    std::size_t place = 1;
    for (;;) {
      Node& node = nodes_[place];
      Node* child = nullptr;
      std::size_t next = 0;
      for (const std::size_t each : {2 * place, 2 * place + 1}) {
        if (each >= places_) break;
        Node& candidate = nodes_[each];
        candidate.lock.lock();
        if (candidate.tag == kEmpty || (child != nullptr && candidate.entry.priority >= child->entry.priority)) {
          candidate.lock.unlock();
          continue;
        }
        if (child != nullptr) child->lock.unlock();
        child = &candidate;
        next = each;
      }
      if (child == nullptr || child->entry.priority >= node.entry.priority) {
        if (child != nullptr) child->lock.unlock();
        node.lock.unlock();
        return;
      }
      swap_entries(node, *child);
      node.lock.unlock();
      place = next;
    }
  }

  SpinLock shape_;  // guards size_
  std::size_t size_ = 0;
  std::size_t places_ = 2;
  std::unique_ptr<Node[]> nodes_;  // the root is at 1
};

}  // namespace esd
