// A mark for the inner loops that are worth more than one compilation.
//
// ESD_HOT compiles a function twice, for any x86-64 and for AVX2; the loader picks one when the module is loaded.
// Functions called in its loop are marked ESD_HOT_INLINE: only if inlined are they compiled with the same instructions.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(ESD_SANITIZE)
#define ESD_HOT __attribute__((target_clones("arch=x86-64-v3", "default")))
#else
#define ESD_HOT
#endif
#define ESD_HOT_INLINE inline __attribute__((always_inline))
