// Products with weights that were packed for the bfloat16 dot product, in tiles of 32 columns.
//
// Every output is one chain of additions over the inputs in their order, whatever the number of rows: a row's result
// depends on nothing but the row.
#pragma once

#include <type_traits>

#include "../vectors.h"
#include "multiply.h"
#include "multiply_arm.h"
#include "partition.h"

// Fields as in structs.py.
struct Packed {
    // Of bfloat16: [tiles, inputs / 2, 32, 2], pairs of inputs lie together; columns are filled up with zeros.
    // Of whole numbers: as packed_codes.py says.
    const void* weight;
    const float* bias;  // [32 * tiles] or null
    int64_t inputs, outputs;
    int64_t group;  // inputs that share a scale
    int32_t bits, scale_bytes, has_offsets;  // bits: 16 of bfloat16
    int32_t is_e2m1;  // codes of 4 bits are floating point numbers
};

namespace {

constexpr int64_t TILE = 32;
constexpr int64_t ROWS = 8;  // that a product keeps in registers
// So many rows wait for the memory, and not for the arithmetic. They pass two tiles at once, one or two rows four: who
// reads at several places is given more by the memory, and the registers have room for the sums.
constexpr int64_t FEW_ROWS = 6;

inline bool is_quantised(const Packed& w) { return w.bits < 16; }
inline int64_t num_tiles(const Packed& w) { return (w.outputs + TILE - 1) / TILE; }

inline Parts parts_of(const Packed& w, int64_t rows, int64_t threads) {
    return {num_tiles(w), rows, is_quantised(w) ? 0 : w.inputs * int64_t(sizeof(bf16)), threads};
}

// The columns of a tile to a row of `out` [outputs], rounded.
template <class T>
inline void store_tile(T* out, int64_t outputs, int64_t tile, vec low, vec high) {
    T *to = out + tile * TILE, columns[TILE];
    const bool is_whole = outputs - tile * TILE >= TILE;
    T* at = is_whole ? to : columns;
    store(at, low);
    store(at + LANES, high);
    if (!is_whole) memcpy(to, columns, (outputs - tile * TILE) * sizeof(T));
}

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

#ifdef SIGNALBOX_DOT

// Rows [0, R) of `x` times tiles [tile, tile + T). `take(row, tile, low, high)` gets the two vectors of each.
template <int R, int T, class Take>
inline void multiply_tiles(const Packed& w, int64_t tile, const bf16* x, Take&& take) {
    const int64_t pairs = w.inputs / 2, lot = pairs * 2 * TILE;
    vec total[R][2 * T] = {};
    multiply<R, 2 * T, T>(x, w.inputs, (const bf16*)w.weight + tile * lot, pairs, total, lot);
    for (int r = 0; r < R; r++)
        for (int t = 0; t < T; t++) {
            if (w.bias)
                for (int c = 0; c < 2; c++) total[r][2 * t + c] += load(w.bias + (tile + t) * TILE + c * LANES);
            take(r, tile + t, total[r][2 * t], total[r][2 * t + 1]);
        }
}

// The same for tiles [tile, end).
template <int R, class Take>
inline void multiply_rows(const Packed& w, int64_t tile, int64_t end, const bf16* x, Take&& take) {
    if constexpr (R <= 2)
        for (; end - tile >= 4; tile += 4) multiply_tiles<R, 4>(w, tile, x, take);
    if constexpr (R <= FEW_ROWS)
        for (; end - tile >= 2; tile += 2) multiply_tiles<R, 2>(w, tile, x, take);
    for (; tile < end; tile++) multiply_tiles<R, 1>(w, tile, x, take);
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
