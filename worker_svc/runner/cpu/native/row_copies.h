// Rows of a KV cache, copied from one process's memory to another's, wherever they lie.
#pragma once

#include <cstdint>
#include <cstring>
#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace {

// What is written past the caches at once, where this CPU can do so.
#if defined __AVX512F__
typedef __m512i Piece;
inline void stream(Piece* to, Piece piece) { _mm512_stream_si512(to, piece); }
#elif defined __AVX2__
typedef __m256i Piece;
inline void stream(Piece* to, Piece piece) { _mm256_stream_si256(to, piece); }
#elif defined __x86_64__
typedef __m128i Piece;
inline void stream(Piece* to, Piece piece) { _mm_stream_si128(to, piece); }
#endif

// One tensor's blocks at both ends: block b is `row_bytes` from `b * row_bytes` on.
struct StripPair {
    char* target;
    const char* source;
    int64_t row_bytes;
};

constexpr int64_t CACHE_LINE = 64, SMALL_PAGE = 4096;

// `next` and `next_target` are where the row behind this one comes from and goes to: the CPU fetches ahead by itself
// only within a page, and a row is hardly longer. What is written here a later step reads, if any: it goes past the
// caches.
inline void copy_row(char* target, const char* source, int64_t bytes, const char* next, const char* next_target) {
    int64_t done = 0;
#ifdef __x86_64__
    for (int64_t i = 0; i < bytes; i += SMALL_PAGE) __builtin_prefetch(next_target + i, 1);
    if ((uintptr_t)target % CACHE_LINE == 0)
        for (; done + CACHE_LINE <= bytes; done += CACHE_LINE) {
            __builtin_prefetch(next + done);
            for (int64_t at = done; at < done + CACHE_LINE; at += sizeof(Piece)) {
                Piece piece;
                memcpy(&piece, source + at, sizeof piece);
                stream((Piece*)(target + at), piece);
            }
        }
#else
    for (int64_t i = 0; i < bytes; i += CACHE_LINE) __builtin_prefetch(next + i);
#endif
    memcpy(target + done, source + done, bytes - done);
}

void copy_rows(const StripPair* strips, int64_t num_strips, const int64_t* targets, const int64_t* sources,
               int64_t count) {
    for (int64_t s = 0; s < num_strips; s++) {
        const StripPair& strip = strips[s];
        for (int64_t i = 0; i < count; i++) {
            // The last row of a strip has the first of the next one behind it.
            const StripPair& ahead = i + 1 < count || s + 1 == num_strips ? strip : strips[s + 1];
            const int64_t n = i + 1 < count ? i + 1 : s + 1 == num_strips ? i : 0;
            copy_row(strip.target + targets[i] * strip.row_bytes, strip.source + sources[i] * strip.row_bytes,
                     strip.row_bytes, ahead.source + sources[n] * ahead.row_bytes,
                     ahead.target + targets[n] * ahead.row_bytes);
        }
    }
#ifdef __x86_64__
    _mm_sfence();  // whoever is told that the rows are there sees them
#endif
}

}  // namespace
