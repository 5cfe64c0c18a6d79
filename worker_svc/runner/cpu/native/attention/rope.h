// Norms, and the rotation of queries and keys with the write of keys and values to the cache.
#pragma once

#include "../vectors.h"

struct Rope {
    void* qkv;
    const void *cosines, *sines, *query_norm, *key_norm;
    void *keys, *values;
    const int64_t *block_ids, *offsets;
    int64_t num_tokens, num_heads, num_kv_heads, dim, rotary_dim, block_size;
    float epsilon, weight_offset;
    int32_t is_bf16, num_threads;
};

namespace {

// Whole vectors, then what is left one by one.
template <class T>
void normalize(const T* x, const T* weight, int64_t dim, float epsilon, float offset, bool rounds, T* to) {
    vec squares{};
    int64_t d = 0;
    for (; d + LANES <= dim; d += LANES) {
        vec v = load(x + d);
        squares += v * v;
    }
    float square = sum(squares);
    for (; d < dim; d++) square += widen(x[d]) * widen(x[d]);
    const float scale = 1.0f / std::sqrt(square / dim + epsilon);
    for (d = 0; d + LANES <= dim; d += LANES) {
        const vec v = load(x + d) * scale;
        store(to + d, (rounds ? rounded<T>(v) : v) * (load(weight + d) + offset));
    }
    for (; d < dim; d++) {
        const float v = widen(x[d]) * scale;
        narrow((rounds ? rounded<T>(v) : v) * (widen(weight[d]) + offset), to + d);
    }
}

// One head in place: normalized if there is a weight, then its first `rotary_dim` elements rotated.
template <class T>
void rope_head(const Rope& r, T* head, const T* norm, const T* cosine, const T* sine) {
    if (norm) normalize(head, norm, r.dim, r.epsilon, r.weight_offset, r.weight_offset == 0, head);
    const int64_t half = r.rotary_dim / 2;
    int64_t i = 0;
    for (; i + LANES <= half; i += LANES) {
        const vec low = load(head + i), high = load(head + i + half);
        store(head + i, low * load(cosine + i) - high * load(sine + i));
        store(head + i + half, high * load(cosine + i + half) + low * load(sine + i + half));
    }
    for (; i < half; i++) {
        const float low = widen(head[i]), high = widen(head[i + half]);
        narrow(low * widen(cosine[i]) - high * widen(sine[i]), head + i);
        narrow(high * widen(cosine[i + half]) + low * widen(sine[i + half]), head + i + half);
    }
}

template <class T>
void rope_and_write_token(const Rope& r, int64_t t) {
    const int64_t heads = r.num_heads, kv = r.num_kv_heads;
    T* token = (T*)r.qkv + t * (heads + 2 * kv) * r.dim;
    const T *cosine = (const T*)r.cosines + t * r.rotary_dim, *sine = (const T*)r.sines + t * r.rotary_dim;
    for (int64_t h = 0; h < heads + kv; h++)
        rope_head(r, token + h * r.dim, (const T*)(h < heads ? r.query_norm : r.key_norm), cosine, sine);
    const int64_t first = r.block_ids[t] * kv * r.block_size + r.offsets[t];
    for (int64_t h = 0; h < kv; h++) {
        const int64_t at = (first + h * r.block_size) * r.dim;
        memcpy((T*)r.keys + at, token + (heads + h) * r.dim, r.dim * sizeof(T));
        memcpy((T*)r.values + at, token + (heads + kv + h) * r.dim, r.dim * sizeof(T));
    }
}

template <class T>
void rope_and_write(const Rope& r) {
#pragma omp parallel for num_threads(r.num_threads) if (r.num_threads > 1 && r.num_tokens >= 16)
    for (int64_t t = 0; t < r.num_tokens; t++) rope_and_write_token<T>(r, t);
}

}  // namespace
