// A hash table with open addressing and linear probing for small entries, which grows by a quarter at a time.
//
// Entries lie in the order of 32 bits of their hash, but for collisions, in a table of any length. So growth copies from
// front to back, and between 3/5 and 3/4 of the table are in use.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "common/pages.h"

namespace esd::rows {

// Entry: an aggregate whose zero value is free, with `bool free() const` and `std::uint32_t bits() const`, its bits of
// the hash.
template <typename Entry>
class ProbeTable {
 public:
  // Number of places, used and free.
  std::size_t places() const { return places_; }
  const Entry& at(std::size_t place) const { return entries()[place]; }
  std::size_t used() const { return used_; }
  std::size_t memory_bytes() const { return places_ * sizeof(Entry); }

  // The entry with these bits for which `is(entry)` holds; null: there is none.
  template <typename Is>
  Entry* find(std::uint32_t bits, const Is& is) const {
    if (places_ == 0) return nullptr;
    for (std::size_t place = home(bits);; place = after(place)) {
      Entry& entry = entries()[place];
      if (entry.free()) return nullptr;
      if (entry.bits() == bits && is(entry)) return &entry;
    }
  }

  // Adds an entry, which must not be there.
  void insert(const Entry& entry) {
    if ((used_ + 1) * 4 > places_ * 3) grow();
    put(entry);
    ++used_;
  }

  // Removes an entry that `find` has returned. Later entries of the same probing sequence move up into the gap, so that
  // probing still finds them.
  void erase(const Entry* entry) {
    std::size_t gap = static_cast<std::size_t>(entry - entries());
    for (std::size_t place = after(gap); !entries()[place].free(); place = after(place)) {
      if (distance(home(entries()[place].bits()), place) < distance(gap, place)) continue;
      entries()[gap] = entries()[place];
      gap = place;
    }
    entries()[gap] = Entry{};
    --used_;
  }

 private:
  static constexpr std::size_t kLeastPlaces = 16;

  Entry* entries() const { return reinterpret_cast<Entry*>(pages_.data()); }
  std::size_t home(std::uint32_t bits) const { return bits * static_cast<std::uint64_t>(places_) >> 32; }
  std::size_t after(std::size_t place) const { return place + 1 == places_ ? 0 : place + 1; }
  std::size_t distance(std::size_t from, std::size_t to) const { return to >= from ? to - from : to + places_ - from; }

  void put(const Entry& entry) {
    std::size_t place = home(entry.bits());
    while (!entries()[place].free()) place = after(place);
    entries()[place] = entry;
  }

  void grow() {
    const ProbeTable old = std::exchange(*this, ProbeTable());
    used_ = old.used_;
    places_ = std::max(kLeastPlaces, old.places_ + old.places_ / 4);
    pages_ = Pages(places_ * sizeof(Entry));
    for (std::size_t place = 0; place < old.places_; ++place) {
      if (!old.at(place).free()) put(old.at(place));
    }
  }

  Pages pages_;
  std::size_t places_ = 0;
  std::size_t used_ = 0;
};

}  // namespace esd::rows
