// Products with weights in floats, or in bfloat16 where there is no dot product of it, in tiles of 32 columns: for what
// must not depend on the number of rows and has no routine of its own. Like in linear.h, an output is one chain.
#pragma once

#include <type_traits>

#include "linear.h"

namespace {

#ifdef __AVX512F__
constexpr int64_t PLAIN_ROWS = 8;
#else
constexpr int64_t PLAIN_ROWS = 2;  // what 16 registers hold
#endif

// `R` rows of `x` times one tile of floats [inputs, 32].
template <int R, class T>
__attribute__((noinline)) void multiply_plain(const T* x, int64_t inputs, const float* w, vec (*result)[2]) {
    vec total[R][2] = {};
    for (int64_t k = 0; k < inputs; k++) {
        const vec low = load(w + k * TILE), high = load(w + k * TILE + LANES);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            const vec number = splat(widen(x[r * inputs + k]));
            total[r][0] += number * low;
            total[r][1] += number * high;
        }
    }
    memcpy(result, total, sizeof total);
}

// Of bfloat16 [inputs / 2, 32, 2]: a lane has the numbers of two inputs.
template <int R, class T>
__attribute__((noinline)) void multiply_plain(const T* x, int64_t inputs, const bf16* w, vec (*result)[2]) {
    vec total[R][2] = {};
    for (int64_t k = 0; k < inputs; k += 2) {
        uvec pairs[2];
        memcpy(pairs, w + k * TILE, sizeof pairs);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            const vec first = splat(widen(x[r * inputs + k])), second = splat(widen(x[r * inputs + k + 1]));
            for (int c = 0; c < 2; c++) {
                total[r][c] += first * (vec)(pairs[c] << 16);
                total[r][c] += second * (vec)(pairs[c] & 0xffff0000);
            }
        }
    }
    memcpy(result, total, sizeof total);
}

// Like multiply_all in linear.h, for one tile of weights of 32 or 16 bits.
template <class T, class Take>
inline void multiply_all_plain(const Packed& w, int64_t tile, const T* x, int64_t rows, Take&& take) {
    auto multiply = [&](int64_t first, auto count) {
        vec total[count()][2];
        const T* at = x + first * w.inputs;
        if (w.bits == 32)
            multiply_plain<count()>(at, w.inputs, (const float*)w.weight + tile * w.inputs * TILE, total);
        else
            multiply_plain<count()>(at, w.inputs, (const bf16*)w.weight + tile * w.inputs * TILE, total);
        for (int r = 0; r < count(); r++) {
            if (w.bias)
                for (int c = 0; c < 2; c++) total[r][c] += load(w.bias + tile * TILE + c * LANES);
            take(first + r, tile, total[r][0], total[r][1]);
        }
    };
    int64_t first = 0;
    for (; first + PLAIN_ROWS <= rows; first += PLAIN_ROWS)
        multiply(first, std::integral_constant<int, PLAIN_ROWS>());
    for (; first < rows; first++) multiply(first, std::integral_constant<int, 1>());
}

// `x` [rows, inputs] times weights of 32 or 16 bits, rounded, to `out` [rows, outputs].
template <class T>
inline void linear_plain(const Packed& w, const T* x, T* out, int64_t rows, int threads) {
    const int64_t tiles = num_tiles(w);
    const bool is_large = rows * w.inputs * w.outputs > PARALLEL_BYTES;
#pragma omp parallel for schedule(dynamic) num_threads(threads) if (threads > 1 && is_large)
    for (int64_t tile = 0; tile < tiles; tile++)
        multiply_all_plain(w, tile, x, rows, [&](int64_t r, int64_t t, vec low, vec high) {
            store_tile(out + r * w.outputs, w.outputs, t, low, high);
        });
}

}  // namespace
