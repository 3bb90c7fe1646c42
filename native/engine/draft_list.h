// A list whose next element is written before it is known whether it counts, so that no branch depends on that: where it
// can hardly be predicted, writing in vain is cheaper.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <type_traits>

namespace esd {

template <typename T>
class DraftList {
  static_assert(std::is_trivial_v<T>);

 public:
  void clear() { size_ = 0; }

  // The place behind the last element, until `keep`.
  T& next() {
    if (size_ == capacity_) grow();
    return values_[size_];
  }
  void keep(bool counts) { size_ += counts; }

  std::size_t size() const { return size_; }
  const T* begin() const { return values_.get(); }
  const T* end() const { return values_.get() + size_; }
  const T& operator[](std::size_t i) const { return values_[i]; }

 private:
  void grow() {
    const std::size_t capacity = std::max<std::size_t>(64, 2 * capacity_);
    std::unique_ptr<T[]> values(new T[capacity]);
    if (size_ > 0) std::memcpy(values.get(), values_.get(), size_ * sizeof(T));
    values_ = std::move(values);
    capacity_ = capacity;
  }

  std::unique_ptr<T[]> values_;
  std::size_t size_ = 0, capacity_ = 0;
};

}  // namespace esd
