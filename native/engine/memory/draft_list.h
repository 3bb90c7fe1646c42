// DraftList: a list that is written through a pointer, some elements at a time. An element may be written before it is
// known whether it counts, so that no branch depends on that: where it can hardly be predicted, writing in vain is
// cheaper.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

namespace esd {

template <typename T>
class DraftList {
  static_assert(std::is_trivial_v<T>);

 public:
  void clear() { size_ = 0; }

  // Where to write the next elements, up to `count` of them.
  T* draft(std::size_t count) {
    if (capacity_ - size_ < count) grow(size_ + count);
    return values_.get() + size_;
  }
  // Ends the list where the writing has ended.
  void end_at(const T* end) { size_ = static_cast<std::size_t>(end - values_.get()); }

  std::size_t size() const { return size_; }
  const T* begin() const { return values_.get(); }
  const T* end() const { return values_.get() + size_; }
  const T& operator[](std::size_t i) const { return values_[i]; }

 private:
  void grow(std::size_t least) {
    const std::size_t capacity = std::max(least, 2 * capacity_);
    std::unique_ptr<T[]> values(new T[capacity]);
    if (size_ > 0) std::memcpy(values.get(), values_.get(), size_ * sizeof(T));
    values_ = std::move(values);
    capacity_ = capacity;
  }

  std::unique_ptr<T[]> values_;
  std::size_t size_ = 0, capacity_ = 0;
};

}  // namespace esd
