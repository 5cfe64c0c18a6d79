// What attention of decode rows does with the keys and values of a block, and how they are fetched before.
#pragma once

#include <type_traits>

#include "../vectors.h"

namespace {

// sum += products of two lots of numbers, from `key` and `query`; returns how many.
inline int64_t add_products(const float* key, const float* query, int64_t, vec& sum) {
    sum += load(key) * load(query);
    return LANES;
}
inline int64_t add_products(const bf16* key, const bf16* query, [[maybe_unused]] int64_t left, vec& sum) {
#ifdef SIGNALBOX_DOT
    if (left >= 2 * LANES) {
        vec q, k;
        memcpy(&q, query, sizeof q), memcpy(&k, key, sizeof k);
        sum = dot(sum, q, k);
        return 2 * LANES;
    }
#endif
    sum += load(key) * load(query);
    return LANES;
}

// For each of `COUNT` keys 16 lanes whose sum is its product with a query; dim is a multiple of 16. Chains of several
// keys wait for each other less.
template <int COUNT, class T>
inline void products(const T* keys, const T* query, int64_t dim, vec* sums) {
    vec s[COUNT] = {};
    for (int64_t d = 0, step; d < dim; d += step)
#pragma GCC unroll 16
        for (int64_t i = 0; i < COUNT; i++) step = add_products(keys + i * dim + d, query + d, dim - d, s[i]);
    for (int i = 0; i < COUNT; i++) sums[i] = s[i];
}

#ifdef __AVX512F__
constexpr int KEYS_TOGETHER = 16;
#else
constexpr int KEYS_TOGETHER = 4;  // for which there are registers
#endif

// What is going to be read after this: a part of it is fetched with each piece of work, so that the memory always has
// something to do, but never more than the CPU keeps track of.
struct Ahead {
    const char *at, *end;

    void fetch(int64_t bytes) {
        const char* to = std::min(end, at + bytes);
        for (; at < to; at += 64) __builtin_prefetch(at, 0, 1);
    }
};

// Scores of `count` keys that lie together; in whole groups of 16 unless a block is no multiple of 16.
template <class T>
inline void score_keys(const T* keys, const T* query, int64_t dim, int64_t count, bool grouped, float* to,
                       int64_t fetched, Ahead& ahead) {
    vec lanes[LANES];
    if (!grouped) {
        for (int64_t j = 0; j < count; j++) {
            products<1>(keys + j * dim, query, dim, lanes);
            to[j] = sum(lanes[0]);
        }
        ahead.fetch(count * fetched);
        return;
    }
    // With a constant the compiler needs no pointer for each key.
    const auto score = [&](auto dim) {
        for (int64_t j = 0; j < count; j += LANES) {
            ahead.fetch(LANES * fetched);
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i += KEYS_TOGETHER)
                products<KEYS_TOGETHER>(keys + (j + i) * dim, query, dim, lanes + i);
            store(to + j, sums_of_16(lanes));
        }
    };
    if (dim == 64) score(std::integral_constant<int64_t, 64>());
    else if (dim == 128) score(std::integral_constant<int64_t, 128>());
    else score(dim);
}

// 32 * `LOTS` elements of a value: floats as they lie, of bfloat16 the even ones of 32, then the odd ones, which takes
// no shuffle. Their sums lie like that, too, until `put_in_order`.
template <int LOTS>
inline void load_lots(const bf16* value, vec (&to)[2 * LOTS]) {
    for (int c = 0; c < LOTS; c++) {
        vec pairs;
        memcpy(&pairs, value + 2 * c * LANES, sizeof pairs);
        to[2 * c] = even_of(pairs), to[2 * c + 1] = odd_of(pairs);
    }
}
template <int LOTS>
inline void load_lots(const float* value, vec (&to)[2 * LOTS]) {
    for (int c = 0; c < 2 * LOTS; c++) to[c] = load(value + c * LANES);
}
inline void put_in_order(const float*, float*, int64_t) {}
inline void put_in_order(const bf16*, float* sums, int64_t dim) {
    for (int64_t d = 0; d + 2 * LANES <= dim; d += 2 * LANES) {
        const vec even = load(sums + d), odd = load(sums + d + LANES);
        store(sums + d, __builtin_shuffle(even, odd, ivec{0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23}));
        store(sums + d + LANES,
              __builtin_shuffle(even, odd, ivec{8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31}));
    }
}

// Values of a part of a block, and what their sums go to.
template <class T>
struct Values {
    const T* values;
    int64_t stride, low, high;  // positions [low, high) of the block
    const float* weights;  // of the first head
    int64_t weight_stride;  // from head to head
    float* out;
    int64_t out_stride;
    int64_t fetched;  // bytes with each position
};

// out[g] += sum over j of weights[g][j] * values[j], for `HEADS` heads and 32 * `LOTS` elements of a value from `d` on.
template <int HEADS, int LOTS, class T>
inline void add_values(const Values<T>& v, int64_t d, Ahead& ahead) {
    vec total[HEADS][2 * LOTS];
    for (int g = 0; g < HEADS; g++)
        for (int c = 0; c < 2 * LOTS; c++) total[g][c] = load(v.out + g * v.out_stride + d + c * LANES);
    for (int64_t j = v.low; j < v.high; j++) {
        ahead.fetch(v.fetched);
        vec value[2 * LOTS];
        load_lots<LOTS>(v.values + j * v.stride + d, value);
#pragma GCC unroll 4
        for (int g = 0; g < HEADS; g++) {
            const float weight = v.weights[g * v.weight_stride + j];
            for (int c = 0; c < 2 * LOTS; c++) total[g][c] += weight * value[c];
        }
    }
    for (int g = 0; g < HEADS; g++)
        for (int c = 0; c < 2 * LOTS; c++) store(v.out + g * v.out_stride + d + c * LANES, total[g][c]);
}
// The same for the last 16 elements where they are no multiple of 32.
template <class T>
inline void add_last_values(const Values<T>& v, int64_t d, int64_t heads) {
    for (int64_t g = 0; g < heads; g++) {
        float* out = v.out + g * v.out_stride + d;
        vec total = load(out);
        for (int64_t j = v.low; j < v.high; j++)
            total += v.weights[g * v.weight_stride + j] * load(v.values + j * v.stride + d);
        store(out, total);
    }
}
template <int HEADS, class T>
inline void add_values_of_heads(const Values<T>& v, int64_t dim, Ahead& ahead) {
    int64_t d = 0;
    for (; d + 4 * LANES <= dim; d += 4 * LANES) add_values<HEADS, 2>(v, d, ahead);
    for (; d + 2 * LANES <= dim; d += 2 * LANES) add_values<HEADS, 1>(v, d, ahead);
    if (d < dim) add_last_values(v, d, HEADS);
}
// For any number of heads.
template <class T>
inline void add_all_values(Values<T> v, int64_t heads, int64_t dim, Ahead& ahead) {
    for (int64_t count; heads > 0; heads -= count) {
        count = heads == 6 || heads == 3 ? 3 : heads >= 4 ? 4 : heads;
        if (count == 4) add_values_of_heads<4>(v, dim, ahead);
        if (count == 3) add_values_of_heads<3>(v, dim, ahead);
        if (count == 2) add_values_of_heads<2>(v, dim, ahead);
        if (count == 1) add_values_of_heads<1>(v, dim, ahead);
        v.weights += count * v.weight_stride;
        v.out += count * v.out_stride;
    }
}

}  // namespace
