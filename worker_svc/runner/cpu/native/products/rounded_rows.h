// Rows as whole numbers of 16 bits in pieces of 32 inputs, each with a scale of its own.
#pragma once

#include "../vectors.h"
#include "matrix_units.h"

#ifdef __AVX2__
#define SIGNALBOX_WORDS  // products of several rows in 16 bits: see quantised_words.h
#endif

namespace {

constexpr int64_t PIECE = 32;  // inputs that share a scale in a row
constexpr int64_t HALF = PIECE / 2;
constexpr int64_t MOST_CODES_BY_VECTORS = 15;  // rows, of codes of 4 bits

// Rows from which on words are faster: of codes of 4 bits, and of 8.
#ifdef __AVX512VNNI__
constexpr int64_t FEWEST_BY_WORDS = 8, FEWEST_BYTES_BY_WORDS = 12;
#else
constexpr int64_t FEWEST_BY_WORDS = 1, FEWEST_BYTES_BY_WORDS = 1;
#endif

// Rows in 16 bits: 256 * high + low.
struct Rounded {
    const int8_t *high, *low;  // [rows, inputs]
    const float* scales;  // [rows, inputs / 32]
    const int32_t* sums;  // [rows, inputs / 16] of the codes
    // For matrix units that multiply with codes of 4 bits, else null: [rows, inputs / 32, 2, 32] of 256 * high, and of
    // low. Of each four inputs the second and the third one have changed places.
    const bf16* halves;
    // For products with words, else null: [rows, inputs] the codes in that order, and [rows, inputs / 32] their scales
    // times their sums.
    const int16_t* words;
    const float* scaled_sums;
    int64_t inputs;

    int32_t sum_of(int64_t at, int64_t count) const {  // of 16 or 32 codes from there on
        const int32_t* s = sums + at / HALF;
        return count == HALF ? s[0] : s[0] + s[1];
    }
    Rounded from(int64_t row) const {  // without the rows before
        const int64_t at = row * inputs;
        return {high + at, low + at, scales + at / PIECE, sums + at / HALF, halves ? halves + 2 * at : nullptr,
                words ? words + at : nullptr, scaled_sums ? scaled_sums + at / PIECE : nullptr, inputs};
    }
};

struct RoundedRows {
    std::vector<int8_t> high, low;
    std::vector<float> scales;
    std::vector<int32_t> sums;
    std::vector<bf16> halves;
    std::vector<int16_t> words;
    std::vector<float> scaled_sums;

    void resize(int64_t rows, int64_t inputs) {
#ifdef SIGNALBOX_MATRIX_UNITS
        has_halves_ = uses_matrix_units && rows > MOST_CODES_BY_VECTORS;
        if (has_halves_ && (int64_t)halves.size() < 2 * rows * inputs) halves.resize(2 * rows * inputs);
#endif
#ifdef SIGNALBOX_WORDS
        has_words_ = rows >= FEWEST_BY_WORDS;
        if (has_words_ && (int64_t)words.size() < rows * inputs) {
            words.resize(rows * inputs);
            scaled_sums.resize(rows * inputs / PIECE);
        }
#endif
        if ((int64_t)high.size() >= rows * inputs) return;
        high.resize(rows * inputs);
        low.resize(rows * inputs);
        scales.resize(rows * inputs / PIECE);
        sums.resize(rows * inputs / HALF);
    }
    Rounded view(int64_t inputs) const {
        return {high.data(), low.data(), scales.data(), sums.data(), has_halves_ ? halves.data() : nullptr,
                has_words_ ? words.data() : nullptr, has_words_ ? scaled_sums.data() : nullptr, inputs};
    }

    // Row `r` of `x`. A number that is not finite leaves a scale that is not, so it is found in what comes out.
    template <class T>
    void round(const T* x, int64_t r, int64_t inputs) {
        for (int64_t k = 0; k < inputs; k += PIECE) {
            const int64_t at = r * inputs + k;
            const vec first = load(x + at), second = load(x + at + LANES);
            const float largest = largest_of(larger(larger(first, -first), larger(second, -second)));
            const float inverse = largest > 0 ? LARGEST_CODE / largest : 0.0f;
            scales[at / PIECE] = largest / LARGEST_CODE + zero_of(first * 0.0f + second * 0.0f);
            sums[at / HALF] = put(first * inverse, at);
            sums[at / HALF + 1] = put(second * inverse, at + LANES);
            if (has_words_) scaled_sums[at / PIECE] = scales[at / PIECE] * (sums[at / HALF] + sums[at / HALF + 1]);
        }
    }

  private:
    static constexpr float LARGEST_CODE = 127 * 256;
    bool has_halves_ = false, has_words_ = false;

    // Nearest whole numbers, ties to even; their sum.
    int32_t put(vec v, int64_t at) {
        constexpr float MAGIC = 12582912.0f;
        const ivec whole = (ivec)(v + MAGIC) - (ivec)splat(MAGIC);
        const ivec upper = (whole + 128) >> 8, lower = whole - (upper << 8);
        const auto high_bytes = __builtin_convertvector(upper, bytes);
        const auto low_bytes = __builtin_convertvector(lower, bytes);
        memcpy(&high[at], &high_bytes, sizeof high_bytes);
        memcpy(&low[at], &low_bytes, sizeof low_bytes);
        if (has_halves_) {
            bf16* to = &halves[2 * (at / PIECE * PIECE) + at % PIECE];
            store_halves(to, upper << 8);
            store_halves(to + PIECE, lower);
        }
        if (has_words_) {
            typedef int16_t shorts __attribute__((vector_size(2 * LANES)));
            const auto in_order = __builtin_convertvector(swapped(whole), shorts);
            memcpy(&words[at], &in_order, sizeof in_order);
        }
        return total_of(whole);
    }

    // The second and the third of each four change places.
    static ivec swapped(ivec v) {
        return __builtin_shuffle(v, ivec{0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15});
    }

    static void store_halves(bf16* to, ivec whole) {
        const uvec bits = (uvec)__builtin_convertvector(swapped(whole), vec) >> 16;
        const hvec h = __builtin_convertvector(bits, hvec);
        memcpy(to, &h, sizeof h);
    }

    typedef int8_t bytes __attribute__((vector_size(LANES)));

#ifdef __AVX512F__
    static int32_t total_of(ivec v) { return _mm512_reduce_add_epi32((__m512i)v); }
    static float largest_of(vec v) { return _mm512_reduce_max_ps((__m512)v); }
    // 0 if all are; else what is no number.
    static float zero_of(vec v) { return _mm512_cmpneq_ps_mask((__m512)v, (__m512)vec{}) ? NAN : 0.0f; }
#else
    static int32_t total_of(ivec v) {
        int32_t total = 0;
        for (int i = 0; i < LANES; i++) total += v[i];
        return total;
    }
    static float largest_of(vec v) { return max(v); }
    static float zero_of(vec v) { return sum(v); }
#endif
};

}  // namespace
