// Column: a vector whose elements are written right after they are added, so growing it writes no zeros first.
#pragma once

#include <memory>
#include <new>
#include <vector>

namespace esd {

template <typename T>
struct UninitializedAllocator : std::allocator<T> {
  template <typename U>
  struct rebind {
    using other = UninitializedAllocator<U>;
  };
  using std::allocator<T>::allocator;
  template <typename U>
  void construct(U* place) {
    ::new (static_cast<void*>(place)) U;
  }
};

template <typename T>
using Column = std::vector<T, UninitializedAllocator<T>>;

}  // namespace esd
