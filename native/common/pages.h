// Zeroed memory that goes back to the system as soon as it is freed.
//
// The allocator of the C library keeps freed pieces for later. A table that grows and shrinks at every checkpoint would
// leave holes there as large as its data, so its large pieces are mapped.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

namespace esd {

class Pages {
 public:
  Pages() = default;

  // Takes physical memory for the pages that are touched only.
  explicit Pages(std::size_t size) : size_(size) {
    if (is_mapped()) {
      void* const mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      data_ = mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
    } else {
      data_ = static_cast<std::byte*>(std::calloc(size, 1));
    }
    if (!data_ && size > 0) throw std::bad_alloc();
  }

  Pages(Pages&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

  Pages& operator=(Pages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  ~Pages() {
    if (is_mapped()) {
      munmap(data_, size_);
    } else {
      std::free(data_);
    }
  }

  std::byte* data() const { return data_; }

 private:
  static constexpr std::size_t kLeastMapped = 64 * 1024;

  bool is_mapped() const { return size_ >= kLeastMapped; }

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace esd
