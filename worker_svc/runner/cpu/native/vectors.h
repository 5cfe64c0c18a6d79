// Vectors of 16 floats, and numbers of 16 bits.
//
// They are GCC's own vector type, which it maps to AVX-512, to pairs of AVX2 registers, or to whatever there is; only
// the bfloat16 dot product is written by hand. Where there is one SIGNALBOX_DOT is defined.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>
#ifdef __AVX2__
#include <immintrin.h>
#endif
#ifdef __aarch64__
#include <arm_neon.h>  // but for its loads and stores: they take what lies there for numbers of their own type
#endif

namespace {

typedef float vec __attribute__((vector_size(64)));
typedef int32_t ivec __attribute__((vector_size(64)));
typedef uint32_t uvec __attribute__((vector_size(64)));
typedef uint16_t hvec __attribute__((vector_size(32)));

constexpr int LANES = 16;
constexpr int64_t PARALLEL_BYTES = 1 << 17;  // below this a second thread costs more than it brings

struct bf16 {
    uint16_t bits;  // the upper half of a float
};

inline float widen(float x) { return x; }
inline float widen(bf16 x) {
    uint32_t bits = uint32_t(x.bits) << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}
inline void narrow(float x, float* to) { *to = x; }
inline void narrow(float x, bf16* to) {  // to nearest, ties to even
    uint32_t bits;
    memcpy(&bits, &x, 4);
    to->bits = x != x ? 0x7fc0 : uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
template <class T>
inline float rounded(float x) {
    T t;
    narrow(x, &t);
    return widen(t);
}

template <class R>
inline R load_register(const void* p, int64_t i = 0) {
    R r;
    memcpy(&r, (const char*)p + i * sizeof r, sizeof r);
    return r;
}

inline vec load(const float* p) {
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}
inline vec load(const bf16* p) {
    hvec h;
    memcpy(&h, p, sizeof h);
#ifdef __AVX512F__  // one instruction, which GCC 12 does not find
    return (vec)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)h), 16);
#else
    return (vec)(__builtin_convertvector(h, uvec) << 16);
#endif
}
// Of 32 numbers that lie together: those at even places, and those at odd ones.
inline vec even_of(vec pairs) { return (vec)((ivec)pairs << 16); }
inline vec odd_of(vec pairs) { return (vec)((ivec)pairs & (int32_t)0xffff0000); }
inline void store(float* p, vec v) { memcpy(p, &v, sizeof v); }
inline void store(bf16* p, vec v) {
#ifdef __AVX512BF16__
    __m256bh h = _mm512_cvtneps_pbh((__m512)v);
#else
    uvec bits = (uvec)v;
    bits = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    hvec h = __builtin_convertvector(v != v ? uvec{} + 0x7fc0 : bits, hvec);
#endif
    memcpy(p, &h, sizeof h);
}
template <class T>
inline vec rounded(vec v) {
    T t[LANES];
    store(t, v);
    return load(t);
}
inline vec splat(float x) { return vec{} + x; }

// Lane i of the result is that of the sum and the products of pair i of `a` and of `b`, which are of bfloat16.
#ifdef __AVX512BF16__
#define SIGNALBOX_DOT
inline vec dot(vec sum, vec a, vec b) {
    return (vec)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
}
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define SIGNALBOX_DOT
inline vec dot(vec sum, vec a, vec b) {
    for (int i = 0; i < 4; i++) {
        const float32x4_t one = ((const float32x4_t*)&a)[i], other = ((const float32x4_t*)&b)[i];
        float32x4_t& to = ((float32x4_t*)&sum)[i];
        to = vbfdotq_f32(to, vreinterpretq_bf16_f32(one), vreinterpretq_bf16_f32(other));
    }
    return sum;
}
#endif

#ifdef __AVX512F__
inline vec larger(vec a, vec b) { return (vec)_mm512_max_ps((__m512)a, (__m512)b); }
inline vec smaller(vec a, vec b) { return (vec)_mm512_min_ps((__m512)a, (__m512)b); }
#else
inline vec larger(vec a, vec b) { return a > b ? a : b; }
inline vec smaller(vec a, vec b) { return a < b ? a : b; }
#endif
// Lanes 8 apart are added first, then those 4, 2 and 1 apart.
inline float sum(vec v) {
#ifdef __AVX512F__
    return _mm512_reduce_add_ps((__m512)v);
#endif
    float s[LANES];
    store(s, v);
    for (int w = LANES / 2; w; w /= 2)
        for (int i = 0; i < w; i++) s[i] += s[i + w];
    return s[0];
}
// Bit i is lane i of a comparison.
inline uint32_t bits_of(ivec mask) {
#ifdef __AVX512F__
    return _mm512_cmplt_epi32_mask((__m512i)mask, _mm512_setzero_si512());
#else
    uint32_t bits = 0;
    for (int i = 0; i < LANES; i++) bits |= uint32_t(mask[i] & 1) << i;
    return bits;
#endif
}
inline float max(vec v) {
#ifdef __AVX512F__
    return _mm512_reduce_max_ps((__m512)v);
#endif
    float best = v[0];
    for (int i = 1; i < LANES; i++) best = std::max(best, v[i]);
    return best;
}

// e^x to about 1e-7, by the polynomial of Cephes' expf; arguments beyond the range of floats are clamped.
inline vec exponential(vec x) {
    x = larger(smaller(x, splat(88.0f)), splat(-87.0f));
    vec n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;  // the nearest whole number
    vec r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vec y = splat(1.9875691500e-4f);
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r * r + r + 1.0f;
    ivec power = (__builtin_convertvector(n, ivec) + 127) << 23;
    return y * (vec)power;
}
// log(x) to about 1e-7 of it, by the polynomial of Cephes' logf; of numbers above 1e-37.
inline vec logarithm(vec x) {
    const ivec bits = (ivec)x;
    const vec half = (vec)((bits & 0x7fffff) | 0x3f000000);  // x is half * 2^n
    const ivec is_low = half < 0.70710678f;
    const vec n = __builtin_convertvector((bits >> 23) - 126 + is_low, vec);
    const vec m = (is_low ? half + half : half) - 1.0f, z = m * m;
    vec y = splat(7.0376836292e-2f);
    y = y * m - 1.1514610310e-1f;
    y = y * m + 1.1676998740e-1f;
    y = y * m - 1.2420140846e-1f;
    y = y * m + 1.4249322787e-1f;
    y = y * m - 1.6668057665e-1f;
    y = y * m + 2.0000714765e-1f;
    y = y * m - 2.4999993993e-1f;
    y = y * m + 3.3333331174e-1f;
    y = y * m * z - 2.12194440e-4f * n - 0.5f * z;
    return m + y + 0.693359375f * n;
}
// log(1 + e^x), which is x itself where that is large. What 1 + e^x loses of a small e^x is added again.
inline vec softplus(vec x) {
    const vec power = exponential(x), whole = 1.0f + power;
    return x > 20.0f ? x : logarithm(whole) + (power - (whole - 1.0f)) / whole;
}
// By Cephes' tanhf near 0, where the other form cancels.
inline vec tanh_of(vec x) {
    vec z = x * x, y = splat(-5.70498872745e-3f);
    y = y * z + 2.06390887954e-2f;
    y = y * z - 5.37397155531e-2f;
    y = y * z + 1.33314422036e-1f;
    y = y * z - 3.33332819422e-1f;
    return z < 0.390625f ? x + x * z * y : 1.0f - 2.0f / (exponential(2.0f * x) + 1.0f);
}

// Lane i of the result is the sum of a[i].
inline vec sums_of_16(vec* a) {
    for (int i = 0; i < 8; i++) {
        vec x = a[2 * i], y = a[2 * i + 1];
        a[i] = __builtin_shuffle(x, y, ivec{0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29}) +
               __builtin_shuffle(x, y, ivec{2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31});
    }
    for (int i = 0; i < 4; i++) {
        vec x = a[2 * i], y = a[2 * i + 1];
        a[i] = __builtin_shuffle(x, y, ivec{0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29}) +
               __builtin_shuffle(x, y, ivec{2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31});
    }
    for (int i = 0; i < 2; i++) {
        vec x = a[2 * i], y = a[2 * i + 1];
        a[i] = __builtin_shuffle(x, y, ivec{0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23}) +
               __builtin_shuffle(x, y, ivec{8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31});
    }
    return __builtin_shuffle(a[0], a[1], ivec{0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27}) +
           __builtin_shuffle(a[0], a[1], ivec{4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31});
}

// Into the second level cache: it takes twice as many lines at a time as the first, which doubles what comes from
// memory.
inline void prefetch(const void* p, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch((const char*)p + i, 0, 1);
}

}  // namespace
