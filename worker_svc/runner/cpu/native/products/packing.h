// Rows of weights side by side in tiles of 32, in words of 4 bytes: pairs of bfloat16, or codes.
#pragma once

#include "linear.h"

struct Packing {
    const uint8_t** rows;  // [32 * tiles]: where each begins
    uint8_t* out;
    int64_t tiles, words;  // words: those of a row
    int64_t group_words, head_bytes;  // so many words of each row lie behind so many bytes, which are left as they are
    int32_t flips, num_threads;  // flips: bits that change in each word
};

namespace {

constexpr int64_t WORD = 4;
constexpr int64_t TILE_WORDS = TILE * WORD;  // bytes of one word of each row

// a[i][j] becomes a[j][i] where bit `S` of i and j differs.
template <int S>
inline void swap_places(uvec* a) {
    ivec low{}, high{};
    for (int j = 0; j < LANES; j++) low[j] = j & S ? LANES + j - S : j, high[j] = j & S ? LANES + j : j + S;
    for (int i = 0; i < LANES; i++) {
        if (i & S) continue;
        const uvec x = a[i], y = a[i + S];
        a[i] = __builtin_shuffle(x, y, low), a[i + S] = __builtin_shuffle(x, y, high);
    }
}

inline void transpose(uvec* a) {
#ifdef __AVX512F__
    swap_places<1>(a), swap_places<2>(a), swap_places<4>(a), swap_places<8>(a);
#else  // narrower registers are slower at this than memory is
    uint32_t words[LANES][LANES];
    memcpy(words, a, sizeof words);
    for (int i = 0; i < LANES; i++)
        for (int j = 0; j < LANES; j++) ((uint32_t*)a)[i * LANES + j] = words[j][i];
#endif
}

// Words [first, first + count) of 16 rows, from `rows` on, to every 32nd word from `out` on. Each line of the rows is
// read whole: rows that are a power of 2 apart share few places of the cache.
inline void pack_words(const Packing& r, const uint8_t** rows, uint8_t* out, int64_t first, int64_t count) {
    uvec a[LANES] = {};
    for (int i = 0; i < LANES; i++) memcpy(&a[i], rows[i] + first * WORD, count * WORD), a[i] ^= uint32_t(r.flips);
    transpose(a);
    const int64_t group_bytes = r.head_bytes + r.group_words * TILE_WORDS;
    uint8_t* group = out + first / r.group_words * group_bytes + r.head_bytes;
    int64_t place = first % r.group_words;
    for (int64_t i = 0; i < count; i++) {
        memcpy(group + place * TILE_WORDS, &a[i], sizeof a[i]);
        if (++place == r.group_words) place = 0, group += group_bytes;
    }
}

void pack_rows(const Packing& r) {
    const int64_t num_groups = (r.words + r.group_words - 1) / r.group_words;
    const int64_t tile_bytes = num_groups * r.head_bytes + r.words * TILE_WORDS;
#pragma omp parallel for schedule(dynamic) num_threads(r.num_threads) if (r.num_threads > 1)
    for (int64_t tile = 0; tile < r.tiles; tile++)
        for (int64_t first = 0; first < r.words; first += LANES)
            for (int64_t half = 0; half < TILE; half += LANES)
                pack_words(r, r.rows + tile * TILE + half, r.out + tile * tile_bytes + half * WORD, first,
                           std::min<int64_t>(LANES, r.words - first));
}

}  // namespace
