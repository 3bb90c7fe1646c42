// ESD_HOT compiles a function twice, for any x86-64 and for AVX2, and picks at load time.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(ESD_SANITIZE)
#define ESD_HOT __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define ESD_HOT
#endif
