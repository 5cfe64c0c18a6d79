// States that a step leaves behind go past the caches: nobody reads them before the next step.
#pragma once

#include "../vectors.h"

namespace {

inline void store_past(float* p, vec v) {
#ifdef __AVX512F__
    _mm512_stream_ps(p, (__m512)v);
#else
    store(p, v);
#endif
}
inline void end_stores_past() {
#ifdef __AVX512F__
    _mm_sfence();
#endif
}

}  // namespace
