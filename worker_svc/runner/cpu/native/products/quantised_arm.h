// Products of several rows with weights kept as whole numbers, by ARM's product of matrices of 8 bits (SMMLA): a matrix
// of two columns of eight inputs, times one of a row's upper and of its lower halves. That takes half of the
// instructions of dot products for the same codes, and the sums are exact, so they are the same.
#pragma once

#include "kept_codes.h"

#ifdef __ARM_FEATURE_MATMUL_INT8
#define SIGNALBOX_BYTE_MATRICES

namespace {

constexpr int CODE_REGISTERS = TILE / 4;  // of four columns

// Eight inputs of four columns as signed numbers, two columns in each register. They lie in one word of each column, or
// in two; see packed_codes.py.
template <int BITS>
inline void load_columns(const uint8_t* codes, int8x16_t (&to)[2]) {
    uint8x16_t first = load_register<uint8x16_t>(codes), second;
    if constexpr (BITS == 8) {
        const uint8x16_t highest = vdupq_n_u8(0x80);  // taken as codes - 128
        first = veorq_u8(first, highest), second = veorq_u8(load_register<uint8x16_t>(codes + TILE * 4), highest);
    } else {
        second = vshrq_n_u8(first, 4), first = vandq_u8(first, vdupq_n_u8(15));
        if constexpr (BITS == E2M1) first = e2m1_codes(first), second = e2m1_codes(second);
    }
    const uint32x4_t a = vreinterpretq_u32_u8(first), b = vreinterpretq_u32_u8(second);
    to[0] = vreinterpretq_s8_u32(vzip1q_u32(a, b)), to[1] = vreinterpretq_s8_u32(vzip2q_u32(a, b));
}

// sums[r] += `R` rows times `INPUTS` inputs of all columns of a tile; rows are `stride` numbers apart.
template <int R, int BITS, int INPUTS>
inline void multiply_bytes(const int8_t* high, const int8_t* low, int64_t stride, const uint8_t* codes,
                           ExactSums* sums) {
    constexpr int N = CODE_REGISTERS / R, STEP = 8;
    constexpr int64_t STEP_BYTES = TILE * STEP * STORED_BITS<BITS> / 8;
    for (int i = 0; i < CODE_REGISTERS; i += N) {
        int32x4_t total[R][N][2] = {};  // of two columns, upper and lower of each
#pragma GCC unroll 4
        for (int k = 0; k < INPUTS; k += STEP) {
            int8x16_t rows[R];
#pragma GCC unroll 4
            for (int r = 0; r < R; r++)
                rows[r] = vcombine_s8(load_register<int8x8_t>(high + r * stride + k),
                                      load_register<int8x8_t>(low + r * stride + k));
#pragma GCC unroll 8
            for (int n = 0; n < N; n++) {
                int8x16_t columns[2];
                load_columns<BITS>(codes + k / STEP * STEP_BYTES + (i + n) * 16, columns);
#pragma GCC unroll 4
                for (int r = 0; r < R; r++)
                    for (int c = 0; c < 2; c++) total[r][n][c] = vmmlaq_s32(total[r][n][c], columns[c], rows[r]);
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; r++)
#pragma GCC unroll 8
            for (int n = 0; n < N; n++) {
                int32x4_t &upper = ((int32x4_t*)sums[r].high)[i + n], &lower = ((int32x4_t*)sums[r].low)[i + n];
                upper = vaddq_s32(upper, vuzp1q_s32(total[r][n][0], total[r][n][1]));
                lower = vaddq_s32(lower, vuzp2q_s32(total[r][n][0], total[r][n][1]));
            }
    }
}

}  // namespace

#endif
