// ESD_HD marks functions that CUDA compiles as well: no allocation, no containers. NVRTC, the run-time compiler, has no
// standard library, so a header that it reads takes the integer types from here.
#pragma once

#if defined(__CUDACC_RTC__)
namespace std {
using int32_t = int;
using uint32_t = unsigned;
using int64_t = long long;
using uint64_t = unsigned long long;
using ptrdiff_t = long;
using size_t = unsigned long;
}  // namespace std
#else
#include <cstddef>
#include <cstdint>
#endif

#if defined(__CUDACC__)
#define ESD_HD __host__ __device__ __forceinline__
#define ESD_HD_CALL __host__ __device__ __noinline__  // too large to be inlined twice
#else
#define ESD_HD inline __attribute__((always_inline))
#define ESD_HD_CALL inline
#endif
