// What products of bfloat16 are made of: some rows times some vectors of columns, by the dot product of AVX-512.
#pragma once

#include "../vectors.h"

namespace {

constexpr int64_t AHEAD_BYTES = 2048;  // between what is read and what is fetched

#ifdef __AVX512BF16__

inline vec load_pair(const void* p) {  // two numbers, in all lanes
    int32_t pair;
    memcpy(&pair, p, sizeof pair);
    return (vec)_mm512_set1_epi32(pair);
}
// total[r][c] += x[r] * w for `R` rows, `stride` numbers apart, and `C` vectors of columns. Of these, each `C / T` lie
// together, and the `T` lots of them `lot` numbers apart.
template <int R, int C, int T = 1>
__attribute__((noinline)) void multiply(const bf16* x, int64_t stride, const bf16* w, int64_t pairs, vec (*result)[C],
                                        int64_t lot = 0) {
    constexpr int EACH = C / T;
    vec total[R][C];
    memcpy(total, result, sizeof total);
    for (int64_t k = 0; k < pairs; k++) {
        vec columns[C];
#pragma GCC unroll 16
        for (int c = 0; c < C; c++) {
            const bf16* at = w + c / EACH * lot + (k * EACH + c % EACH) * 2 * LANES;
            __builtin_prefetch((const char*)at + AHEAD_BYTES);
            memcpy(&columns[c], at, sizeof(vec));
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            vec pair = load_pair(x + r * stride + 2 * k);
#pragma GCC unroll 16
            for (int c = 0; c < C; c++) total[r][c] = dot(total[r][c], pair, columns[c]);
        }
    }
    memcpy(result, total, sizeof total);
}

#endif

}  // namespace
