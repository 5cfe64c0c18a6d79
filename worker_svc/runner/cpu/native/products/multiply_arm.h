// What products of bfloat16 are made of, by ARM's dot product (BFDOT) of one row and its product of matrices (BFMMLA)
// of several.
//
// Both add the rounded sum of two products to what is there, rounded to odd each time, whatever the rounding mode says;
// the second one does so twice, input after input. So one row and several have the same numbers, those of ARM alone:
// AVX-512 rounds after each product, to nearest. Source: Arm ARM DDI 0487, BFDotAdd and BFMatMulAdd with FPCR.EBF 0,
// which is what Linux starts processes with.
#pragma once

#include "multiply.h"

#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC

namespace {

constexpr int REGISTER = 4;  // columns

// Where the weights of four columns lie.
template <int EACH>
struct WeightPlace {
    const bf16* weights;
    int64_t lot;

    // Of pair `k`; register after register.
    bfloat16x8_t load(int64_t k, int i) const {
        const int c = i / REGISTER;
        const bf16* at = weights + c / EACH * lot + (k * EACH + c % EACH) * 2 * LANES + i % REGISTER * 2 * REGISTER;
        if (i % REGISTER == 0) __builtin_prefetch((const char*)at + AHEAD_BYTES);
        return load_register<bfloat16x8_t>(at);
    }
};

// result += one row times `N` registers of columns, from register `i` on.
template <int N, int EACH>
inline void add_row(const bf16* x, const WeightPlace<EACH>& columns, int i, int64_t pairs, float* result) {
    float32x4_t total[N];
#pragma GCC unroll 16
    for (int n = 0; n < N; n++) total[n] = load_register<float32x4_t>(result, i + n);
    for (int64_t k = 0; k < pairs; k++) {
        int32_t pair;
        memcpy(&pair, x + 2 * k, sizeof pair);
        const bfloat16x8_t both = vreinterpretq_bf16_s32(vdupq_n_s32(pair));
#pragma GCC unroll 16
        for (int n = 0; n < N; n++) total[n] = vbfdotq_f32(total[n], columns.load(k, i + n), both);
    }
#pragma GCC unroll 16
    for (int n = 0; n < N; n++) memcpy(result + (i + n) * REGISTER, &total[n], sizeof total[n]);
}

// The halves of two registers that come first, or last.
inline float32x4_t firsts(float32x4_t a, float32x4_t b) {
    return vreinterpretq_f32_f64(vzip1q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}
inline float32x4_t lasts(float32x4_t a, float32x4_t b) {
    return vreinterpretq_f32_f64(vzip2q_f64(vreinterpretq_f64_f32(a), vreinterpretq_f64_f32(b)));
}

// result[r] += `R` rows times `N` registers of columns, two pairs at a time. A matrix is of two rows and two columns;
// where there is no other row the last one stands for it.
template <int R, int N, int EACH, int C>
inline void add_rows(const bf16* x, int64_t stride, const WeightPlace<EACH>& columns, int i, int64_t pairs,
                     vec (*result)[C]) {
    constexpr int P = (R + 1) / 2;
    constexpr auto other = [](int p) { return std::min(2 * p + 1, R - 1); };
    auto put = [&](int r, int n, float32x4_t sums) {
        memcpy((float*)result[r] + (i + n) * REGISTER, &sums, sizeof sums);
    };
    float32x4_t total[P][2 * N];
#pragma GCC unroll 4
    for (int p = 0; p < P; p++)
#pragma GCC unroll 8
        for (int n = 0; n < N; n++) {
            const auto a = load_register<float32x4_t>(result[2 * p], i + n);
            const auto b = load_register<float32x4_t>(result[other(p)], i + n);
            total[p][2 * n] = firsts(a, b), total[p][2 * n + 1] = lasts(a, b);
        }
    for (int64_t k = 0; k < pairs; k += 2) {
        bfloat16x8_t rows[P];
#pragma GCC unroll 4
        for (int p = 0; p < P; p++)
            rows[p] = vcombine_bf16(load_register<bfloat16x4_t>(x + 2 * p * stride + 2 * k),
                                    load_register<bfloat16x4_t>(x + other(p) * stride + 2 * k));
#pragma GCC unroll 8
        for (int n = 0; n < N; n++) {
            const int32x4_t a = vreinterpretq_s32_bf16(columns.load(k, i + n));
            const int32x4_t b = vreinterpretq_s32_bf16(columns.load(k + 1, i + n));
            const bfloat16x8_t left = vreinterpretq_bf16_s32(vzip1q_s32(a, b));
            const bfloat16x8_t right = vreinterpretq_bf16_s32(vzip2q_s32(a, b));
#pragma GCC unroll 4
            for (int p = 0; p < P; p++) {
                total[p][2 * n] = vbfmmlaq_f32(total[p][2 * n], rows[p], left);
                total[p][2 * n + 1] = vbfmmlaq_f32(total[p][2 * n + 1], rows[p], right);
            }
        }
    }
#pragma GCC unroll 4
    for (int p = 0; p < P; p++)
#pragma GCC unroll 8
        for (int n = 0; n < N; n++) {
            put(2 * p, n, firsts(total[p][2 * n], total[p][2 * n + 1]));
            if (2 * p + 1 < R) put(2 * p + 1, n, lasts(total[p][2 * n], total[p][2 * n + 1]));
        }
}

// result[r][c] += x[r] * w for `R` rows, `stride` numbers apart, and `C` vectors of columns. Of these, each `C / T` lie
// together, and the `T` lots of them `lot` numbers apart.
template <int R, int C, int T = 1>
__attribute__((noinline)) void multiply(const bf16* x, int64_t stride, const bf16* w, int64_t pairs, vec (*result)[C],
                                        int64_t lot = 0) {
    constexpr int EACH = C / T, ALL = C * REGISTER;
    const WeightPlace<EACH> columns{w, lot};
    if constexpr (R == 1) {
        constexpr int N = std::min(16, ALL);  // half of the registers there are, for the sums
        for (int i = 0; i < ALL; i += N) add_row<N>(x, columns, i, pairs, (float*)result[0]);
    } else {
        constexpr int N = R <= 2 ? 8 : R <= 4 ? 4 : 2;
        const int64_t whole = pairs / 2 * 2;
        for (int i = 0; i < ALL; i += N) add_rows<R, N>(x, stride, columns, i, whole, result);
        if (whole == pairs) return;
        const WeightPlace<EACH> last{w + whole * EACH * 2 * LANES, lot};
        for (int r = 0; r < R; r++)
            for (int i = 0; i < ALL; i += 2) add_row<2>(x + r * stride + 2 * whole, last, i, 1, (float*)result[r]);
    }
}

}  // namespace

#endif
