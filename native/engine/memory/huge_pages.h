// Memory for big arrays that are read at random. It lies in huge pages where the system has any, so that look-ups do
// not miss the TLB.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <vector>

namespace esd {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

inline void* allocate_huge(std::size_t bytes) {
  const std::size_t rounded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* memory = std::aligned_alloc(kHugePage, rounded);
  if (!memory) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  madvise(memory, rounded, MADV_HUGEPAGE);
#endif
  return memory;
}

// Puts arrays from half a huge page on into huge pages.
template <typename T>
struct HugeAllocator {
  using value_type = T;
  HugeAllocator() = default;
  template <typename U>
  HugeAllocator(const HugeAllocator<U>&) {}

  T* allocate(std::size_t count) {
    const std::size_t bytes = count * sizeof(T);
    return static_cast<T*>(bytes < kHugePage / 2 ? ::operator new(bytes) : allocate_huge(bytes));
  }
  void deallocate(T* memory, std::size_t count) {
    count * sizeof(T) < kHugePage / 2 ? ::operator delete(memory) : std::free(memory);
  }
  template <typename U>
  bool operator==(const HugeAllocator<U>&) const {
    return true;
  }
  template <typename U>
  bool operator!=(const HugeAllocator<U>&) const {
    return false;
  }
};

template <typename T>
using HugeVector = std::vector<T, HugeAllocator<T>>;

}  // namespace esd
