// Products with weights kept as whole numbers of 4 or 8 bits, in tiles of 32 columns, on any processor.
//
// Rows are rounded to 16 bits in pieces of 32 inputs, each with a scale of its own, and multiplied by their upper and
// their lower halves: 8 bits alone cost a model more than bfloat16 does. Sums of 16 or 32 products are exact;
// what is added up of them in floats is one chain in the order of the inputs. So a row's result depends on nothing but
// the row, and is the same wherever a multiplication and an addition are one operation.
#pragma once

#include <type_traits>

#include "linear.h"
#ifdef __ARM_FEATURE_DOTPROD
#include <arm_neon.h>
#endif

namespace {

constexpr int64_t PIECE = 32;  // inputs that share a scale in a row
constexpr int64_t HALF = PIECE / 2;

struct f16 {
    uint16_t bits;
};

inline vec load(const f16* p) {
#ifdef __AVX512F__
    __m256i h;
    memcpy(&h, p, sizeof h);
    return (vec)_mm512_cvtph_ps(h);
#else
    vec v;
#ifdef __F16C__
    for (int i = 0; i < 2; i++) ((__m256*)&v)[i] = _mm256_cvtph_ps(((const __m128i_u*)p)[i]);
#else
    // Exponents move by 112 in a multiplication, which is exact for numbers below the smallest normal one, too.
    hvec h;
    memcpy(&h, p, sizeof h);
    const uvec bits = __builtin_convertvector(h, uvec);
    v = (vec)((bits & 0x7fff) << 13) * 0x1p112f;
    v = (vec)((uvec)v | (bits & 0x8000) << 16);
#endif
    return v;
#endif
}

// Rows in 16 bits: 256 * high + low.
struct Rounded {
    const int8_t *high, *low;  // [rows, inputs]
    const float* scales;  // [rows, inputs / 32]
    const int32_t* sums;  // [rows, inputs / 16] of the codes
    int64_t inputs;
};

struct RoundedRows {
    std::vector<int8_t> high, low;
    std::vector<float> scales;
    std::vector<int32_t> sums;

    void resize(int64_t rows, int64_t inputs) {
        if ((int64_t)high.size() >= rows * inputs) return;
        high.resize(rows * inputs);
        low.resize(rows * inputs);
        scales.resize(rows * inputs / PIECE);
        sums.resize(rows * inputs / HALF);
    }
    Rounded view(int64_t inputs) const { return {high.data(), low.data(), scales.data(), sums.data(), inputs}; }

    // Row `r` of `x`. A number that is not finite leaves a scale that is not, so it is found in what comes out.
    template <class T>
    void round(const T* x, int64_t r, int64_t inputs) {
        for (int64_t k = 0; k < inputs; k += PIECE) {
            const int64_t at = r * inputs + k;
            const vec first = load(x + at), second = load(x + at + LANES);
            const vec sizes = larger(larger(first, -first), larger(second, -second));
            const float largest = max(sizes), zero = sum(first * 0.0f + second * 0.0f);
            const float inverse = largest > 0 ? LARGEST_CODE / largest : 0.0f;
            scales[at / PIECE] = largest / LARGEST_CODE + zero;
            sums[at / HALF] = put(first * inverse, at);
            sums[at / HALF + 1] = put(second * inverse, at + LANES);
        }
    }

  private:
    static constexpr float LARGEST_CODE = 127 * 256;

    // Nearest whole numbers, ties to even; their sum.
    int32_t put(vec v, int64_t at) {
        constexpr float MAGIC = 12582912.0f;
        const ivec whole = (ivec)(v + MAGIC) - (ivec)splat(MAGIC);
        const ivec upper = (whole + 128) >> 8, lower = whole - (upper << 8);
        int32_t total = 0;
        for (int i = 0; i < LANES; i++) {
            high[at + i] = (int8_t)upper[i];
            low[at + i] = (int8_t)lower[i];
            total += whole[i];
        }
        return total;
    }
};

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
template <int BITS> constexpr int32_t MIDDLE = BITS == 8 ? 0 : 8;
#else
template <int BITS> constexpr int32_t MIDDLE = BITS == 8 ? 128 : 8;
#endif

inline ivec splat4(const int8_t* p) {  // four numbers, in all lanes
    int32_t four;
    memcpy(&four, p, sizeof four);
    return ivec{} + four;
}

inline ivec load_words(const uint8_t* p) {
    ivec words;
    memcpy(&words, p, sizeof words);
    return words;
}

// What a group of a tile begins with: 32 scales, and as many offsets if there are any.
struct GroupHead {
    vec scales[2], offsets[2];
};

inline GroupHead read_head(const Packed& w, const uint8_t* at) {
    auto read = [&](int64_t i) {
        return w.scale_bytes == 2 ? load((const f16*)at + i) : load((const float*)at + i);
    };
    GroupHead head{{read(0), read(LANES)}, {}};
    if (w.has_offsets) head.offsets[0] = read(TILE), head.offsets[1] = read(TILE + LANES);
    return head;
}

inline int64_t head_bytes(const Packed& w) { return TILE * w.scale_bytes * (1 + (w.has_offsets != 0)); }
inline int64_t group_bytes(const Packed& w) {
    return head_bytes(w) + TILE * w.group * w.bits / 8;
}
inline int64_t tile_bytes(const Packed& w) { return group_bytes(w) * (w.inputs / w.group); }

// sums[r][c] += rows * codes, for `N` inputs; rows are `stride` numbers apart.
template <int R, int BITS, int N>
inline void add_products(const int8_t* rows, int64_t stride, const uint8_t* codes, ivec (*sums)[2]) {
    constexpr int STEP = 32 / BITS;  // inputs of a word of codes
#pragma GCC unroll 8
    for (int k = 0; k < N; k += STEP, codes += 2 * sizeof(ivec)) {
        const ivec words[] = {load_words(codes), load_words(codes + sizeof(ivec))};
#pragma GCC unroll 2
        for (int part = 0; part < STEP / 4; part++) {
            ivec columns[2];
            for (int c = 0; c < 2; c++)
                columns[c] = BITS == 8 ? words[c] : (part ? (ivec)((uvec)words[c] >> 4) : words[c]) & 0x0f0f0f0f;
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) {
                const ivec numbers = splat4(rows + r * stride + k + 4 * part);
                for (int c = 0; c < 2; c++) sums[r][c] = dot4<BITS>(sums[r][c], columns[c], numbers);
            }
        }
    }
}

// total[r][c] += rows [row, row + R) times one tile; `N` inputs are added up exactly.
template <int R, int BITS, int N>
__attribute__((noinline)) void multiply_tile(const Packed& w, const uint8_t* at, const Rounded& x, int64_t row,
                                             vec (*result)[2]) {
    vec total[R][2];
    memcpy(total, result, sizeof total);
    for (int64_t k = 0; k < w.inputs; k += w.group) {
        const GroupHead head = read_head(w, at);
        at += head_bytes(w);
        for (int64_t i = k; i < k + w.group; i += N, at += TILE * N * BITS / 8) {
            ivec sums[R][2];
            int32_t of_codes[R];
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) {
                const int32_t* s = x.sums + ((row + r) * w.inputs + i) / HALF;
                of_codes[r] = N == HALF ? s[0] : s[0] + s[1];
                sums[r][0] = sums[r][1] = ivec{};
            }
            add_products<R, BITS, N>(x.high + row * w.inputs + i, w.inputs, at, sums);
#pragma GCC unroll 8
            for (int r = 0; r < R; r++)
                for (int c = 0; c < 2; c++) sums[r][c] = (sums[r][c] << 8) - MIDDLE<BITS> * of_codes[r];
            add_products<R, BITS, N>(x.low + row * w.inputs + i, w.inputs, at, sums);
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) {
                const float scale = x.scales[((row + r) * w.inputs + i) / PIECE];
                for (int c = 0; c < 2; c++)
                    total[r][c] += head.scales[c] * scale * __builtin_convertvector(sums[r][c], vec);
                if (w.has_offsets)
                    for (int c = 0; c < 2; c++) total[r][c] += head.offsets[c] * (scale * of_codes[r]);
            }
        }
    }
    memcpy(result, total, sizeof total);
}

template <int R>
inline void multiply_tile(const Packed& w, int64_t tile, const Rounded& x, int64_t row, vec (*total)[2]) {
    const uint8_t* at = (const uint8_t*)w.weight + tile * tile_bytes(w);
    if (w.bits == 4) multiply_tile<R, 4, PIECE>(w, at, x, row, total);
    else if (w.group % PIECE) multiply_tile<R, 8, HALF>(w, at, x, row, total);
    else multiply_tile<R, 8, PIECE>(w, at, x, row, total);
}

// Like multiply_all in linear.h, for rounded rows.
template <class Take>
inline void multiply_all(const Packed& w, int64_t tile, const Rounded& x, int64_t rows, Take&& take) {
    auto multiply = [&](int64_t first, auto count) {
        vec total[count()][2] = {};
        multiply_tile<count()>(w, tile, x, first, total);
        for (int r = 0; r < count(); r++) {
            if (w.bias)
                for (int c = 0; c < 2; c++) total[r][c] += load(w.bias + tile * TILE + c * LANES);
            take(first + r, tile, total[r][0], total[r][1]);
        }
    };
    // In powers of two: a routine for each number of rows would take long to compile.
    int64_t first = 0;
    for (; first + 8 <= rows; first += 8) multiply(first, std::integral_constant<int, 8>());
    if (rows & 4) multiply(first, std::integral_constant<int, 4>()), first += 4;
    if (rows & 2) multiply(first, std::integral_constant<int, 2>()), first += 2;
    if (rows & 1) multiply(first, std::integral_constant<int, 1>());
}

// `x` [rows, inputs] times kept weights, rounded, to `out` [rows, outputs].
template <class T>
inline void linear_quantised(const Packed& w, const T* x, T* out, int64_t rows, int threads) {
    static thread_local RoundedRows scratch;
    scratch.resize(rows, w.inputs);
    RoundedRows& rounded_rows = scratch;
    const Rounded view = scratch.view(w.inputs);
    const int64_t tiles = num_tiles(w);
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
#pragma omp for
        for (int64_t r = 0; r < rows; r++) rounded_rows.round(x, r, w.inputs);
#pragma omp for schedule(dynamic, 4)
        for (int64_t tile = 0; tile < tiles; tile++)
            multiply_all(w, tile, view, rows, [&](int64_t r, int64_t t, vec low, vec high) {
                T columns[TILE];
                store(columns, low);
                store(columns + LANES, high);
                memcpy(out + r * w.outputs + t * TILE, columns, std::min(TILE, w.outputs - t * TILE) * sizeof(T));
            });
    }
}

}  // namespace
