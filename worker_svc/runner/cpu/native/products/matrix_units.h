// Products with packed weights on the matrix units of some CPUs (AMX): for many rows they are several times as fast.
//
// What they compute of 32 inputs is two chains of fused multiplications and additions, of the even inputs and of the
// odd ones, which are added up, and then to the sum. Few rows wait for the memory, which is read faster by vectors:
// these compute the same numbers. So a row's result does not depend on how many others there are, here neither.
#pragma once

#include "linear.h"

#if defined(__AVX512BF16__) && defined(__linux__)
#define SIGNALBOX_MATRIX_UNITS

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

inline bool uses_matrix_units = false;  // set before the first product

// True if the system lets this process use them. Every process has to ask, as they make its state larger.
inline bool ask_for_matrix_units() {
    constexpr int REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

constexpr int64_t STEP_INPUTS = 32, UNIT_ROWS = 16;

inline bool is_for_matrix_units(const Packed& w) {
    return uses_matrix_units && !is_quantised(w) && w.inputs % STEP_INPUTS == 0;
}

// Registers: 0 to 3 sums of rows and of 16 columns each, 4 the rows, 6 and 7 the weights.
inline void configure(int64_t rows) {
    struct alignas(64) {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config = {1, 0, {}, {64, 64, 64, 64, 64, 0, 64, 64}, {}};
    for (int i : {0, 1, 2, 3, 4}) config.rows[i] = rows;
    for (int i : {6, 7}) config.rows[i] = STEP_INPUTS / 2;
    // GCC's own functions for this and for the release are there only where all code is compiled for such CPUs.
    asm volatile("ldtilecfg %0" ::"m"(config));
}

// sums [16, 32] = up to 16 rows of `x` times one tile of weights; `between` is called in each step of 32 inputs. Four
// registers are enough: where a core has two threads, instructions on their way need those that hold nothing, and
// eight make this half as fast.
template <class Between>
inline void multiply_tile(const bf16* x, int64_t inputs, const bf16* w, float* sums, Between&& between) {
    const int64_t width = TILE * sizeof(float), pair_bytes = 2 * TILE * sizeof(bf16);
    _tile_zero(0);
    _tile_zero(1);
    for (int64_t k = 0; k < inputs; k += STEP_INPUTS, w += STEP_INPUTS * TILE) {
        _tile_loadd(4, x + k, inputs * sizeof(bf16));
        _tile_loadd(6, w, pair_bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(6, w + 2 * LANES, pair_bytes);
        _tile_dpbf16ps(1, 4, 6);
        between();
    }
    _tile_stored(0, sums, width);
    _tile_stored(1, sums + LANES, width);
}

// sums [2, 16, 32] = up to 16 rows of `x` times two tiles of weights, which lie one behind the other.
inline void multiply_two_tiles(const bf16* x, int64_t inputs, const bf16* w, float* sums) {
    const int64_t width = TILE * sizeof(float), step = STEP_INPUTS * TILE, pair_bytes = 2 * TILE * sizeof(bf16);
    const bf16* other = w + inputs * TILE;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t k = 0; k < inputs; k += STEP_INPUTS, w += step, other += step) {
        for (int i = 0; i < 32; i++) {
            __builtin_prefetch((const char*)w + AHEAD_BYTES + 64 * i);
            __builtin_prefetch((const char*)other + AHEAD_BYTES + 64 * i);
        }
        _tile_loadd(4, x + k, inputs * sizeof(bf16));
        _tile_loadd(6, w, pair_bytes);
        _tile_loadd(7, w + 2 * LANES, pair_bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(6, other, pair_bytes);
        _tile_loadd(7, other + 2 * LANES, pair_bytes);
        _tile_dpbf16ps(2, 4, 6);
        _tile_dpbf16ps(3, 4, 7);
    }
    _tile_stored(0, sums, width);
    _tile_stored(1, sums + LANES, width);
    _tile_stored(2, sums + UNIT_ROWS * TILE, width);
    _tile_stored(3, sums + UNIT_ROWS * TILE + LANES, width);
}

// Matrix units take numbers that are too small for a full mantissa for zeros: so do vectors, as long as this lives.
class ZeroForTiny {
  public:
    ZeroForTiny() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
    ~ZeroForTiny() { _mm_setcsr(before_); }

  private:
    const unsigned before_;
};

// Like multiply_tiles in linear.h, with the numbers of matrix units.
template <int R, int T, class Take>
__attribute__((noinline)) void multiply_tiles_alike(const Packed& w, int64_t tile, const bf16* x, Take& take) {
    const int64_t lot = w.inputs * TILE;
    const bf16* at = (const bf16*)w.weight + tile * lot;
    vec total[R][2 * T] = {};
    for (int64_t k = 0; k < w.inputs; k += STEP_INPUTS) {
        vec even[R][2 * T] = {}, odd[R][2 * T] = {};
        for (int64_t i = k; i < k + STEP_INPUTS; i += 2) {
            vec evens[R], odds[R];
#pragma GCC unroll 4
            for (int r = 0; r < R; r++) {
                const vec pair = load_pair(x + r * w.inputs + i);
                evens[r] = even_of(pair), odds[r] = odd_of(pair);
            }
#pragma GCC unroll 8
            for (int c = 0; c < 2 * T; c++) {
                const bf16* from = at + c / 2 * lot + (i + c % 2) * TILE;
                vec pairs;
                __builtin_prefetch((const char*)from + AHEAD_BYTES);
                memcpy(&pairs, from, sizeof pairs);
                const vec low = even_of(pairs), high = odd_of(pairs);
#pragma GCC unroll 4
                for (int r = 0; r < R; r++) {
                    even[r][c] = (vec)_mm512_fmadd_ps((__m512)evens[r], (__m512)low, (__m512)even[r][c]);
                    odd[r][c] = (vec)_mm512_fmadd_ps((__m512)odds[r], (__m512)high, (__m512)odd[r][c]);
                }
            }
        }
        for (int r = 0; r < R; r++)
            for (int c = 0; c < 2 * T; c++) total[r][c] += even[r][c] + odd[r][c];
    }
    for (int r = 0; r < R; r++)
        for (int t = 0; t < T; t++) take(r, tile + t, total[r][2 * t], total[r][2 * t + 1]);
}

constexpr int64_t MOST_BY_VECTORS = 4;  // rows

template <class Take>
inline void multiply_by_vectors(const Packed& w, int64_t tile, int64_t end, const bf16* x, int64_t rows, Take& take) {
    const ZeroForTiny zero_for_tiny;
    if (rows == 1)
        for (; end - tile >= 4; tile += 4) multiply_tiles_alike<1, 4>(w, tile, x, take);
    for (; rows == 2 && end - tile >= 2; tile += 2) multiply_tiles_alike<2, 2>(w, tile, x, take);
    for (; tile < end; tile++) {
        if (rows == 1) multiply_tiles_alike<1, 1>(w, tile, x, take);
        if (rows == 2) multiply_tiles_alike<2, 1>(w, tile, x, take);
        if (rows == 3) multiply_tiles_alike<3, 1>(w, tile, x, take);
        if (rows == 4) multiply_tiles_alike<4, 1>(w, tile, x, take);
    }
}

// Rows that were multiplied by a tile, and are still to be taken.
struct Untaken {
    const float* sums;  // [rows, 32]
    int64_t row, end, tile;

    template <class Take>
    void take_one(Take& take) {
        if (row == end) return;
        take(row++, tile, load(sums), load(sums + LANES));
        sums += TILE;
    }
};

// Up to 16 rows, two tiles at a time; returns the first tile that is left.
template <class Take>
inline int64_t multiply_pairs(const Packed& w, int64_t tile, int64_t end, const bf16* x, int64_t rows, Take& take) {
    alignas(64) float sums[2 * UNIT_ROWS * TILE];
    for (; end - tile >= 2; tile += 2) {
        multiply_two_tiles(x, w.inputs, (const bf16*)w.weight + tile * w.inputs * TILE, sums);
        for (int64_t t = 0; t < 2; t++)
            for (Untaken u{sums + t * UNIT_ROWS * TILE, 0, rows, tile + t}; u.row < u.end;) u.take_one(take);
    }
    return tile;
}

template <class Take>
inline void multiply_by_units(const Packed& w, int64_t tile, int64_t end, const bf16* x, int64_t rows, Take& take) {
    alignas(64) float sums[2][UNIT_ROWS * TILE];
    configure(std::min(rows, UNIT_ROWS));
    if (rows <= UNIT_ROWS) tile = multiply_pairs(w, tile, end, x, rows, take);
    const int64_t blocks = (rows + UNIT_ROWS - 1) / UNIT_ROWS, lines = (STEP_INPUTS + blocks - 1) / blocks;
    int64_t configured = std::min(rows, UNIT_ROWS);
    Untaken untaken{};
    for (int64_t i = 0; tile < end; tile++) {
        const bf16* at = (const bf16*)w.weight + tile * w.inputs * TILE;
        const char* next = (const char*)(at + w.inputs * TILE);  // comes from the memory while the rows pass this one
        for (int64_t first = 0, count; first < rows; first += count, i++) {
            count = std::min(UNIT_ROWS, rows - first);
            if (count != configured) configure(count);
            configured = count;
            multiply_tile(x + first * w.inputs, w.inputs, at, sums[i % 2], [&] {
                for (int64_t n = 0; n < lines; n++, next += 64) __builtin_prefetch(next, 0, 2);
                untaken.take_one(take);
            });
            while (untaken.row < untaken.end) untaken.take_one(take);
            untaken = {sums[i % 2], first, first + count, tile};
        }
    }
    while (untaken.row < untaken.end) untaken.take_one(take);
    asm volatile("tilerelease");
}

// Like multiply_all in linear.h.
template <class Take>
inline void multiply_on_matrix_units(const Packed& w, int64_t tile, int64_t end, const bf16* x, int64_t rows,
                                     Take&& take) {
    auto with_bias = [&](int64_t r, int64_t t, vec low, vec high) {
        if (w.bias) low += load(w.bias + t * TILE), high += load(w.bias + t * TILE + LANES);
        take(r, t, low, high);
    };
    if (rows <= MOST_BY_VECTORS) multiply_by_vectors(w, tile, end, x, rows, with_bias);
    else multiply_by_units(w, tile, end, x, rows, with_bias);
}

}  // namespace

#endif

#ifdef SIGNALBOX_DOT

namespace {

// Rows of `x` times tiles [tile, end), by matrix units where they are used. `take(row, tile, low, high)` gets both
// vectors.
template <class Take>
inline void multiply_packed(const Packed& w, int64_t tile, int64_t end, const bf16* x, int64_t rows, Take&& take) {
#ifdef SIGNALBOX_MATRIX_UNITS
    if (is_for_matrix_units(w)) return multiply_on_matrix_units(w, tile, end, x, rows, take);
#endif
    multiply_all(w, tile, end, x, rows, take);
}

}  // namespace

#endif
