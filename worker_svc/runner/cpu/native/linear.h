// Products with weights that were packed for the bfloat16 dot product, in tiles of 32 columns.
//
// Every output is one chain of additions over the inputs in their order, whatever the number of rows: a row's result
// depends on nothing but the row.
#pragma once

#include <type_traits>

#include "vectors.h"

// Fields as in structs.py.
struct Packed {
    // Of bfloat16: [tiles, inputs / 2, 32, 2], pairs of inputs lie together; columns are filled up with zeros.
    // Of whole numbers: as packed_codes.py says.
    const void* weight;
    const float* bias;  // [32 * tiles] or null
    int64_t inputs, outputs;
    int64_t group;  // inputs that share a scale
    int32_t bits, scale_bytes, has_offsets;  // bits: 16 of bfloat16
};

namespace {

constexpr int64_t TILE = 32;
constexpr int64_t ROWS = 8;  // that a product keeps in registers

inline bool is_quantised(const Packed& w) { return w.bits < 16; }
inline int64_t num_tiles(const Packed& w) { return (w.outputs + TILE - 1) / TILE; }

// Calls f with `rows`, at most ROWS, as a constant.
template <class F>
inline void with_rows(int64_t rows, F&& f) {
    switch (rows) {
        case 1: return f(std::integral_constant<int, 1>());
        case 2: return f(std::integral_constant<int, 2>());
        case 3: return f(std::integral_constant<int, 3>());
        case 4: return f(std::integral_constant<int, 4>());
        case 5: return f(std::integral_constant<int, 5>());
        case 6: return f(std::integral_constant<int, 6>());
        case 7: return f(std::integral_constant<int, 7>());
        default: return f(std::integral_constant<int, ROWS>());
    }
}

#ifdef __AVX512BF16__

inline vec load_pair(const void* p) {  // two numbers, in all lanes
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return (vec)_mm512_set1_epi32(pair);
}
inline vec dot(vec sum, vec a, vec b) {
    return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
}
// total[r][c] += x[r] * w for `R` rows, `stride` numbers apart, and `C` vectors of columns that lie together.
template <int R, int C, bool AHEAD = false>
__attribute__((noinline)) void multiply(const bf16* x, int64_t stride, const bf16* w, int64_t pairs, vec (*result)[C],
                                        int64_t ahead = 0) {
    vec total[R][C];
    memcpy(total, result, sizeof total);
    for (int64_t k = 0; k < pairs; k++) {
        if (AHEAD)
            for (int c = 0; c < C; c++) __builtin_prefetch(w + ahead + (k * C + c) * 2 * LANES, 0, 1);
        vec columns[C];
#pragma GCC unroll 4
        for (int c = 0; c < C; c++) memcpy(&columns[c], w + (k * C + c) * 2 * LANES, sizeof(vec));
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            vec pair = load_pair(x + r * stride + 2 * k);
#pragma GCC unroll 4
            for (int c = 0; c < C; c++) total[r][c] = dot(total[r][c], pair, columns[c]);
        }
    }
    memcpy(result, total, sizeof total);
}

// Rows [0, R) of `x` times tiles [tile, end). `take(row, tile, low, high)` gets the two vectors of each.
template <int R, class Take>
inline void multiply_rows(const Packed& w, int64_t tile, int64_t end, const bf16* x, Take&& take) {
    const int64_t pairs = w.inputs / 2;
    for (; tile < end; tile++) {
        vec total[R][2] = {};
        multiply<R, 2, R == ROWS>(x, w.inputs, (const bf16*)w.weight + tile * pairs * 2 * TILE, pairs, total,
                                  2 * pairs * 2 * TILE);
        for (int r = 0; r < R; r++) {
            if (w.bias)
                for (int c = 0; c < 2; c++) total[r][c] += load(w.bias + tile * TILE + c * LANES);
            take(r, tile, total[r][0], total[r][1]);
        }
    }
}

// All `rows` of `x` times tiles [tile, end): a tile stays in the cache while the rows pass it.
template <class Take>
inline void multiply_all(const Packed& w, int64_t tile, int64_t end, const bf16* x, int64_t rows, Take&& take) {
    for (int64_t r = 0; r < rows; r += ROWS)
        with_rows(rows - r, [&](auto count) {
            multiply_rows<count()>(w, tile, end, x + r * w.inputs,
                                   [&](int64_t row, int64_t t, vec low, vec high) { take(r + row, t, low, high); });
        });
}

#endif

}  // namespace
