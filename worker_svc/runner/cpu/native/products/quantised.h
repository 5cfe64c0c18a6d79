// Products with weights kept as whole numbers of 4 or 8 bits, in tiles of 32 columns, on any processor.
//
// Rows are rounded to 16 bits in pieces of 32 inputs, each with a scale of its own, and multiplied by their upper and
// their lower halves: 8 bits alone cost a model more than bfloat16 does. Sums of 16 or 32 products are exact;
// what is added up of them in floats is one chain in the order of the inputs. So a row's result depends on nothing but
// the row, and is the same wherever a multiplication and an addition are one operation.
#pragma once

#include <type_traits>

#include "kept_codes.h"
#include "quantised_arm.h"
#include "quantised_units.h"
#include "quantised_words.h"
#include "rounded_rows.h"

namespace {

// sum[i] += codes[4 i .. 4 i + 3] * numbers[4 i .. 4 i + 3]: codes without a sign, of `BITS`; numbers with one.
template <int BITS>
inline ivec dot4(ivec sum, ivec codes, ivec numbers) {
#ifdef __AVX512VNNI__
    return (ivec)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)codes, (__m512i)numbers);
#elif defined(__AVX2__)
    const __m256i ones = _mm256_set1_epi16(1);
    for (int i = 0; i < 2; i++) {
        const __m256i c = ((const __m256i*)&codes)[i], n = ((const __m256i*)&numbers)[i];
        __m256i& s = ((__m256i*)&sum)[i];
        // Pairs are added in 16 bits: the highest bit of a code of 8 goes apart, halved, so that they do not overflow.
        const __m256i lower = BITS == 8 ? _mm256_and_si256(c, _mm256_set1_epi8(0x7f)) : c;
        s = _mm256_add_epi32(s, _mm256_madd_epi16(_mm256_maddubs_epi16(lower, n), ones));
        if (BITS < 8) continue;
        const __m256i highest = _mm256_and_si256(_mm256_srli_epi16(c, 1), _mm256_set1_epi8(0x40));
        s = _mm256_add_epi32(s, _mm256_madd_epi16(_mm256_maddubs_epi16(highest, n), _mm256_set1_epi16(2)));
    }
    return sum;
#elif defined(__ARM_FEATURE_DOTPROD)
    for (int i = 0; i < 4; i++) {
        int8x16_t c = ((const int8x16_t*)&codes)[i];
        if (BITS == 8) c = veorq_s8(c, vdupq_n_s8(-128));  // taken as codes - 128: see MIDDLE
        int32x4_t& s = ((int32x4_t*)&sum)[i];
        s = vdotq_s32(s, c, ((const int8x16_t*)&numbers)[i]);
    }
    return sum;
#else
    for (int i = 0; i < 4 * LANES; i++) sum[i / 4] += ((const uint8_t*)&codes)[i] * ((const int8_t*)&numbers)[i];
    return sum;
#endif
}

// What is still to be taken off codes that `dot4` has multiplied.
#if !defined(__AVX2__) && defined(__ARM_FEATURE_DOTPROD)
template <int BITS> constexpr int32_t MIDDLE = BITS == 8 ? 0 : BITS == E2M1 ? 12 : 8;
#else
template <int BITS> constexpr int32_t MIDDLE = BITS == 8 ? 128 : BITS == E2M1 ? 12 : 8;
#endif

inline ivec splat4(const int8_t* p) {  // four numbers, in all lanes
    int32_t four;
    memcpy(&four, p, sizeof four);
    return ivec{} + four;
}

// sums[r] += rows * codes, for `N` inputs; rows are `stride` numbers apart.
template <int R, int BITS, int N>
inline void add_products(const int8_t* high, const int8_t* low, int64_t stride, const uint8_t* codes, ExactSums* sums) {
#ifdef SIGNALBOX_BYTE_MATRICES
    if constexpr (R > 1) return multiply_bytes<R, BITS, N>(high, low, stride, codes, sums);
#endif
    constexpr int STEP = 32 / STORED_BITS<BITS>;  // inputs of a word of codes
#pragma GCC unroll 8
    for (int k = 0; k < N; k += STEP, codes += 2 * sizeof(ivec)) {
        const ivec words[] = {load_words(codes), load_words(codes + sizeof(ivec))};
#pragma GCC unroll 2
        for (int part = 0; part < STEP / 4; part++) {
            ivec columns[2];
            for (int c = 0; c < 2; c++) {
                columns[c] = BITS == 8 ? words[c] : (part ? (ivec)((uvec)words[c] >> 4) : words[c]) & 0x0f0f0f0f;
                if (BITS == E2M1) columns[c] = e2m1_codes(columns[c]);
            }
#pragma GCC unroll 4
            for (int r = 0; r < R; r++) {
                const ivec upper = splat4(high + r * stride + k + 4 * part);
                const ivec lower = splat4(low + r * stride + k + 4 * part);
                for (int c = 0; c < 2; c++) sums[r].high[c] = dot4<BITS>(sums[r].high[c], columns[c], upper);
                for (int c = 0; c < 2; c++) sums[r].low[c] = dot4<BITS>(sums[r].low[c], columns[c], lower);
            }
        }
    }
}

// total[r] += rows [row, row + R) times `N` inputs, from input `k` on, of one tile.
template <int R, int BITS, int N, int C>
inline void add_lot(const Packed& w, const GroupHead& head, const uint8_t* codes, const Rounded& x, int64_t row,
                    int64_t k, vec (*total)[C], int first_column) {
    const int64_t at = row * w.inputs + k;
    ExactSums sums[R];
    add_products<R, BITS, N>(x.high + at, x.low + at, w.inputs, codes, sums);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
        const int32_t of_codes = x.sum_of(at + r * w.inputs, N);
        const float scale = x.scales[(at + r * w.inputs) / PIECE];
        vec* to = total[r] + first_column;
        for (int c = 0; c < 2; c++) {
            const ivec whole = (sums[r].high[c] << 8) + sums[r].low[c] - MIDDLE<BITS> * of_codes;
            to[c] += head.scales[c] * scale * __builtin_convertvector(whole, vec);
        }
        if (w.has_offsets)
            for (int c = 0; c < 2; c++) to[c] += head.offsets[c] * (scale * of_codes);
    }
}

// result[r] = rows [row, row + R) times tiles [tile, tile + T): two vectors of each.
template <int R, int T, int BITS, int N>
__attribute__((noinline)) void multiply_tiles(const Packed& w, int64_t tile, const Rounded& x, int64_t row,
                                              vec (*result)[2 * T]) {
    constexpr int64_t LOT_BYTES = TILE * N * STORED_BITS<BITS> / 8;
    const int64_t apart = tile_bytes(w), head_size = head_bytes(w);
    const uint8_t* at = (const uint8_t*)w.weight + tile * apart;
    vec total[R][2 * T] = {};
    for (int64_t k = 0; k < w.inputs; k += w.group) {
        GroupHead heads[T];
        for (int t = 0; t < T; t++) {
            prefetch(at + t * apart + AHEAD_BYTES, head_size);
            heads[t] = read_head(w, at + t * apart);
        }
        at += head_size;
        for (int64_t i = k; i < k + w.group; i += N, at += LOT_BYTES)
#pragma GCC unroll 4
            for (int t = 0; t < T; t++) {
                const uint8_t* codes = at + t * apart;
                prefetch(codes + AHEAD_BYTES, LOT_BYTES);
                add_lot<R, BITS, N>(w, heads[t], codes, x, row, i, total, 2 * t);
            }
    }
    memcpy(result, total, sizeof total);
}

template <int R, int T, class Take>
inline void multiply_tiles(const Packed& w, int64_t tile, const Rounded& x, int64_t row, Take&& take) {
    vec total[R][2 * T];
    if (w.is_e2m1 && w.group % PIECE) multiply_tiles<R, T, E2M1, HALF>(w, tile, x, row, total);
    else if (w.is_e2m1) multiply_tiles<R, T, E2M1, PIECE>(w, tile, x, row, total);
    else if (w.bits == 4) multiply_tiles<R, T, 4, PIECE>(w, tile, x, row, total);
    else if (w.group % PIECE) multiply_tiles<R, T, 8, HALF>(w, tile, x, row, total);
    else multiply_tiles<R, T, 8, PIECE>(w, tile, x, row, total);
    for (int r = 0; r < R; r++)
        for (int t = 0; t < T; t++) {
            if (w.bias)
                for (int c = 0; c < 2; c++) total[r][2 * t + c] += load(w.bias + (tile + t) * TILE + c * LANES);
            take(row + r, tile + t, total[r][2 * t], total[r][2 * t + 1]);
        }
}

// Like multiply_all in linear.h, for rounded rows. One row passes several tiles at once, as there.
template <class Take>
inline void multiply_all(const Packed& w, int64_t tile, int64_t end, const Rounded& x, int64_t rows, Take&& take) {
#ifdef SIGNALBOX_MATRIX_UNITS
    if (is_for_units(w, rows)) {
        for (; tile < end; tile++) multiply_codes_by_units(w, tile, x, rows, take);
        return;
    }
#endif
#ifdef SIGNALBOX_WORDS
    if (is_for_words(w, rows)) {
        for (; tile < end; tile++) multiply_by_words(w, tile, x, rows, take);
        return;
    }
#endif
    if (rows == 1)
        for (; end - tile >= 4; tile += 4) multiply_tiles<1, 4>(w, tile, x, 0, take);
    // In powers of two: a routine for each number of rows would take long to compile.
    for (; tile < end; tile++) {
        int64_t row = 0;
        for (; row + 4 <= rows; row += 4) multiply_tiles<4, 1>(w, tile, x, row, take);
        if (rows & 2) multiply_tiles<2, 1>(w, tile, x, row, take), row += 2;
        if (rows & 1) multiply_tiles<1, 1>(w, tile, x, row, take);
    }
}

template <class Take>
inline void multiply_all(const Packed& w, int64_t tile, const Rounded& x, int64_t rows, Take&& take) {
    multiply_all(w, tile, tile + 1, x, rows, take);
}

// `x` [rows, inputs] times kept weights, rounded, to `out` [rows, outputs].
template <class T>
inline void linear_quantised(const Packed& w, const T* x, T* out, int64_t rows, int threads) {
    static thread_local RoundedRows scratch;
    scratch.resize(rows, w.inputs);
    RoundedRows& rounded_rows = scratch;
    const Rounded view = scratch.view(w.inputs);
    const Parts parts = parts_of(w, rows, threads);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
#pragma omp for
        for (int64_t r = 0; r < rows; r++) rounded_rows.round(x, r, w.inputs);
#pragma omp for schedule(dynamic, parts.at_a_time(threads))
        for (int64_t i = 0; i < parts.count(); i++)
            parts.with(i, [&](int64_t tile, int64_t end, int64_t first, int64_t count) {
                multiply_all(w, tile, end, view.from(first), count, [&](int64_t r, int64_t t, vec low, vec high) {
                    store_tile(out + (first + r) * w.outputs, w.outputs, t, low, high);
                });
            });
    }
}

}  // namespace
