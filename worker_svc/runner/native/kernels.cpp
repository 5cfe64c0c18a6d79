// Kernels of the CPU path. A C face and no torch headers: g++ builds this in a second, ctypes calls it.
//
// Vectors of 16 floats are GCC's own vector type, which it maps to AVX-512, to pairs of AVX2 registers, or to
// whatever there is; only the bfloat16 dot product is written by hand. No result depends on the number of
// threads or on the other rows of a call: contexts are split at fixed positions.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif

namespace {

typedef float vec __attribute__((vector_size(64)));
typedef int32_t ivec __attribute__((vector_size(64)));
typedef uint32_t uvec __attribute__((vector_size(64)));
typedef uint16_t hvec __attribute__((vector_size(32)));

constexpr int LANES = 16;
constexpr int64_t SPLIT = 128;  // positions that one attention task looks at
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

inline vec load(const float* p) {
    vec v;
    memcpy(&v, p, sizeof v);
    return v;
}
inline vec load(const bf16* p) {
    hvec h;
    memcpy(&h, p, sizeof h);
    return (vec)(__builtin_convertvector(h, uvec) << 16);
}
inline void store(float* p, vec v) { memcpy(p, &v, sizeof v); }
inline void store(bf16* p, vec v) {
    uvec bits = (uvec)v;
    bits = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    hvec h = __builtin_convertvector(v != v ? uvec{} + 0x7fc0 : bits, hvec);
    memcpy(p, &h, sizeof h);
}
inline vec splat(float x) { return vec{} + x; }
inline vec larger(vec a, vec b) { return a > b ? a : b; }
inline vec smaller(vec a, vec b) { return a < b ? a : b; }
inline float sum(vec v) {
    float s[LANES];
    store(s, v);
    for (int w = LANES / 2; w; w /= 2)
        for (int i = 0; i < w; i++) s[i] += s[i + w];
    return s[0];
}
inline float max(vec v) {
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

// 16 lanes whose sum is the product of a key and a query; dim is a multiple of 16.
inline vec products(const float* key, const float* query, int64_t dim) {
    vec s{};
    for (int64_t d = 0; d < dim; d += LANES) s += load(key + d) * load(query + d);
    return s;
}
inline vec products(const bf16* key, const bf16* query, int64_t dim) {
    vec s{};
    int64_t d = 0;
#ifdef __AVX512BF16__
    for (; d + 32 <= dim; d += 32)
        s = (vec)_mm512_dpbf16_ps((__m512)s, (__m512bh)_mm512_loadu_si512(key + d),
                                  (__m512bh)_mm512_loadu_si512(query + d));
#endif
    for (; d < dim; d += LANES) s += load(key + d) * load(query + d);
    return s;
}

// Scores of `count` keys that lie together; in whole groups of 16 unless a block is no multiple of 16.
template <class T>
inline void score_keys(const T* keys, const T* query, int64_t dim, int64_t count, bool grouped, float* to) {
    if (!grouped) {
        for (int64_t j = 0; j < count; j++) to[j] = sum(products(keys + j * dim, query, dim));
        return;
    }
    for (int64_t j = 0; j < count; j += LANES) {
        vec lanes[LANES];
        for (int i = 0; i < LANES; i++) lanes[i] = products(keys + (j + i) * dim, query, dim);
        store(to + j, sums_of_16(lanes));
    }
}

// out[g] += sum over j of weights[g][j] * values[j], for `HEADS` heads and 16 * `CHUNKS` elements of a value.
template <int HEADS, int CHUNKS, class T>
inline void add_values(const T* values, int64_t dim, int64_t low, int64_t high, const float* weights,
                       int64_t weight_stride, float* out) {
    vec total[HEADS][CHUNKS];
    for (int g = 0; g < HEADS; g++)
        for (int c = 0; c < CHUNKS; c++) total[g][c] = load(out + g * dim + c * LANES);
    for (int64_t j = low; j < high; j++) {
        for (int c = 0; c < CHUNKS; c++) {
            vec v = load(values + j * dim + c * LANES);
            for (int g = 0; g < HEADS; g++) total[g][c] += weights[g * weight_stride + j] * v;
        }
    }
    for (int g = 0; g < HEADS; g++)
        for (int c = 0; c < CHUNKS; c++) store(out + g * dim + c * LANES, total[g][c]);
}
template <int HEADS, class T>
inline void add_values_of_heads(const T* values, int64_t dim, int64_t low, int64_t high, const float* weights,
                                int64_t weight_stride, float* out) {
    int64_t d = 0;
    for (; d + 4 * LANES <= dim; d += 4 * LANES)
        add_values<HEADS, 4>(values + d, dim, low, high, weights, weight_stride, out + d);
    for (; d < dim; d += LANES)
        add_values<HEADS, 1>(values + d, dim, low, high, weights, weight_stride, out + d);
}

inline void prefetch(const void* p, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch((const char*)p + i);
}

}  // namespace

extern "C" {

// Fields as in kernels.py. Heads of a token lie together; all strides count elements.
struct Attention {
    const void *query, *keys, *values;
    void* out;
    const int32_t *query_starts, *positions, *block_tables;
    const float* sinks;
    int64_t query_stride, out_stride;
    int64_t num_rows, table_width, num_heads, num_kv_heads, key_dim, value_dim, block_size, window;
    float scaling, softcap;
    int32_t is_bf16, num_threads;
};

struct Rope {
    void* qkv;
    const void *cosines, *sines, *query_norm, *key_norm;
    void *keys, *values;
    const int64_t *block_ids, *offsets;
    int64_t num_tokens, num_heads, num_kv_heads, dim, rotary_dim, block_size;
    float epsilon, weight_offset;
    int32_t is_bf16, num_threads;
};
}

namespace {

struct Task {
    int64_t row, start, end;  // keys [start, end), all of one split
    float* partial;  // [query tokens, heads, value_dim + 2]: sums, largest score, sum of weights
};

inline int64_t first_key(const Attention& a, int64_t position) {
    return a.window ? std::max<int64_t>(0, position - a.window + 1) : 0;
}

// Turns the scores of keys [low, high) of a split into weights; the rest of their vectors becomes 0.
void weigh(const Attention& a, float* scores, int64_t low, int64_t high, float* partial) {
    float *best = partial + a.value_dim, *total = best + 1;
    *best = -INFINITY;
    *total = 0;
    if (low >= high) return;
    int64_t first = low / LANES * LANES, last = (high + LANES - 1) / LANES * LANES;
    for (int64_t i = first; i < low; i++) scores[i] = 0;  // whatever was there, it must be a number
    for (int64_t i = high; i < last; i++) scores[i] = 0;
    vec most = splat(-INFINITY);
    for (int64_t i = first; i < last; i += LANES) {
        vec s = load(scores + i) * a.scaling;
        if (a.softcap) s = a.softcap * tanh_of(s / a.softcap);
        store(scores + i, s);
    }
    for (int64_t i = first; i < low; i++) scores[i] = -INFINITY;
    for (int64_t i = high; i < last; i++) scores[i] = -INFINITY;
    for (int64_t i = first; i < last; i += LANES) most = larger(load(scores + i), most);
    *best = max(most);
    vec sums{};
    for (int64_t i = first; i < last; i += LANES) {
        vec s = load(scores + i);
        vec w = s > splat(-INFINITY) ? exponential(s - *best) : vec{};
        store(scores + i, w);
        sums += w;
    }
    *total = sum(sums);
}

template <class T>
void attend_split(const Attention& a, const Task& task, std::vector<float>& scores) {
    const int64_t start_token = a.query_starts[task.row], tokens = a.query_starts[task.row + 1] - start_token;
    const int64_t group = a.num_heads / a.num_kv_heads, bs = a.block_size;
    const int64_t base = task.start / SPLIT * SPLIT, width = SPLIT + bs + LANES;
    const int64_t stride = a.value_dim + 2, key_bytes = bs * a.key_dim * sizeof(T);
    const int64_t value_bytes = bs * a.value_dim * sizeof(T);
    const int32_t* table = a.block_tables + task.row * a.table_width;
    const T *keys = (const T*)a.keys, *values = (const T*)a.values;
    const int64_t first_block = task.start / bs, last_block = (task.end - 1) / bs;
    scores.resize(tokens * a.num_heads * width);
    auto key_block = [&](int64_t b, int64_t h) {
        return keys + (table[b] * a.num_kv_heads + h) * bs * a.key_dim;
    };
    auto value_block = [&](int64_t b, int64_t h) {
        return values + (table[b] * a.num_kv_heads + h) * bs * a.value_dim;
    };
    for (int64_t b = first_block; b <= last_block; b++) {
        // A block larger than a split is looked at in the parts that belong to the split.
        const int64_t begin = std::max(b * bs, base), end = std::min((b + 1) * bs, base + SPLIT);
        const int64_t count = std::min(end, (task.end + LANES - 1) / LANES * LANES) - begin;
        for (int64_t h = 0; h < a.num_kv_heads; h++) {
            if (b < last_block) prefetch(key_block(b + 1, h), key_bytes);
            else prefetch(value_block(first_block, h), value_bytes);
            const T* block = key_block(b, h) + (begin - b * bs) * a.key_dim;
            for (int64_t t = 0; t < tokens; t++) {
                const T* query = (const T*)a.query + (start_token + t) * a.query_stride;
                for (int64_t g = h * group; g < (h + 1) * group; g++)
                    score_keys(block, query + g * a.key_dim, a.key_dim, count, bs % LANES == 0,
                               &scores[(t * a.num_heads + g) * width + begin - base]);
            }
        }
    }
    for (int64_t t = 0; t < tokens; t++) {
        const int64_t position = a.positions[start_token + t];
        const int64_t low = std::max(first_key(a, position), task.start) - base;
        const int64_t high = std::min(position + 1, task.end) - base;
        for (int64_t g = 0; g < a.num_heads; g++) {
            float* partial = task.partial + (t * a.num_heads + g) * stride;
            std::fill(partial, partial + a.value_dim, 0.0f);
            weigh(a, &scores[(t * a.num_heads + g) * width], low, high, partial);
        }
    }
    for (int64_t t = 0; t < tokens; t++) {
        const int64_t position = a.positions[start_token + t];
        const int64_t low = std::max(first_key(a, position), task.start);
        const int64_t high = std::min(position + 1, task.end);
        if (low >= high) continue;
        static thread_local std::vector<float> sums;
        sums.assign(a.num_heads * a.value_dim, 0.0f);
        for (int64_t b = low / bs; b <= (high - 1) / bs; b++) {
            const int64_t j0 = std::max(low, b * bs) - b * bs, j1 = std::min(high, (b + 1) * bs) - b * bs;
            for (int64_t h = 0; h < a.num_kv_heads; h++) {
                if (b < (high - 1) / bs) prefetch(value_block(b + 1, h), value_bytes);
                const T* block = value_block(b, h);
                int64_t g = h * group;
                const int64_t end = g + group;
                auto weights = [&] { return &scores[(t * a.num_heads + g) * width] + b * bs - base; };
                auto out = [&] { return &sums[g * a.value_dim]; };
                for (; g + 4 <= end; g += 4)
                    add_values_of_heads<4>(block, a.value_dim, j0, j1, weights(), width, out());
                for (; g + 2 <= end; g += 2)
                    add_values_of_heads<2>(block, a.value_dim, j0, j1, weights(), width, out());
                for (; g < end; g++)
                    add_values_of_heads<1>(block, a.value_dim, j0, j1, weights(), width, out());
            }
        }
        for (int64_t g = 0; g < a.num_heads; g++)
            std::copy_n(&sums[g * a.value_dim], a.value_dim, task.partial + (t * a.num_heads + g) * stride);
    }
}

// Joins the partial results of a head's splits, `step` floats apart, in ascending order.
template <class T>
void join(const Attention& a, const float* partial, int64_t splits, int64_t step, int64_t head, T* out) {
    const float* best = partial + a.value_dim;
    float most = a.sinks ? a.sinks[head] : -INFINITY;
    for (int64_t s = 0; s < splits; s++) most = std::max(most, best[s * step]);
    float total = a.sinks ? std::exp(a.sinks[head] - most) : 0.0f;
    std::vector<float> share(splits);
    for (int64_t s = 0; s < splits; s++) {
        share[s] = best[s * step] > -INFINITY ? std::exp(best[s * step] - most) : 0.0f;
        total += share[s] * best[s * step + 1];
    }
    for (int64_t d = 0; d < a.value_dim; d += LANES) {
        vec v{};
        for (int64_t s = 0; s < splits; s++) v += share[s] * load(partial + s * step + d);
        store(out + d, v / total);
    }
}

template <class T>
void attend(const Attention& a) {
    static thread_local std::vector<float> partials;
    std::vector<Task> tasks;
    std::vector<int64_t> row_tasks(1, 0), offsets;
    int64_t size = 0, bytes = 0;
    for (int64_t r = 0; r < a.num_rows; r++) {
        const int64_t tokens = a.query_starts[r + 1] - a.query_starts[r];
        const int64_t start = first_key(a, a.positions[a.query_starts[r]]);
        const int64_t end = a.positions[a.query_starts[r + 1] - 1] + 1;
        for (int64_t k = start; k < end; k = (k / SPLIT + 1) * SPLIT) {
            tasks.push_back({r, k, std::min(end, (k / SPLIT + 1) * SPLIT), nullptr});
            offsets.push_back(size);
            size += tokens * a.num_heads * (a.value_dim + 2);
        }
        row_tasks.push_back(tasks.size());
        bytes += (end - start) * a.num_kv_heads * (a.key_dim + a.value_dim) * sizeof(T);
    }
    partials.resize(size);
    for (size_t i = 0; i < tasks.size(); i++) tasks[i].partial = &partials[offsets[i]];
#pragma omp parallel num_threads(a.num_threads) if (a.num_threads > 1 && bytes > PARALLEL_BYTES)
    {
        static thread_local std::vector<float> scores;
#pragma omp for schedule(dynamic, 1)
        for (size_t i = 0; i < tasks.size(); i++) attend_split<T>(a, tasks[i], scores);
#pragma omp for schedule(static)
        for (int64_t r = 0; r < a.num_rows; r++) {
            const int64_t start = a.query_starts[r], tokens = a.query_starts[r + 1] - start;
            const int64_t stride = a.value_dim + 2, step = tokens * a.num_heads * stride;
            for (int64_t i = 0; i < tokens * a.num_heads; i++)
                join(a, tasks[row_tasks[r]].partial + i * stride, row_tasks[r + 1] - row_tasks[r], step,
                     i % a.num_heads,
                     (T*)a.out + (start + i / a.num_heads) * a.out_stride + i % a.num_heads * a.value_dim);
        }
    }
}

template <class T>
void normalize(const T* x, const T* weight, int64_t dim, float epsilon, float offset, bool rounds, float* to) {
    vec squares{};
    int64_t d = 0;
    for (; d + LANES <= dim; d += LANES) {
        vec v = load(x + d);
        squares += v * v;
    }
    float square = sum(squares);
    for (; d < dim; d++) square += widen(x[d]) * widen(x[d]);
    const float scale = 1.0f / std::sqrt(square / dim + epsilon);
    for (int64_t i = 0; i < dim; i++) {
        const float v = widen(x[i]) * scale;
        to[i] = (rounds ? rounded<T>(v) : v) * (widen(weight[i]) + offset);
    }
}

// One head in place: normalized if there is a weight, then its first `rotary_dim` elements rotated.
template <class T>
void rope_head(const Rope& r, T* head, const T* norm, const T* cosine, const T* sine) {
    float x[1024];
    if (norm) normalize(head, norm, r.dim, r.epsilon, r.weight_offset, r.weight_offset == 0, x);
    else for (int64_t i = 0; i < r.dim; i++) x[i] = widen(head[i]);
    if (norm) for (int64_t i = 0; i < r.dim; i++) x[i] = rounded<T>(x[i]);
    const int64_t half = r.rotary_dim / 2;
    for (int64_t i = 0; i < half; i++) {
        narrow(x[i] * widen(cosine[i]) - x[i + half] * widen(sine[i]), head + i);
        narrow(x[i + half] * widen(cosine[i + half]) + x[i] * widen(sine[i + half]), head + i + half);
    }
    for (int64_t i = r.rotary_dim; i < r.dim; i++) narrow(x[i], head + i);
}

template <class T>
void rope_and_write(const Rope& r) {
    const int64_t heads = r.num_heads, kv = r.num_kv_heads;
#pragma omp parallel for num_threads(r.num_threads) if (r.num_threads > 1 && r.num_tokens >= 16)
    for (int64_t t = 0; t < r.num_tokens; t++) {
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
}

template <class T>
void rms_norm(const T* x, const T* weight, T* out, int64_t rows, int64_t dim, float epsilon, float offset,
              bool rounds, int threads) {
#pragma omp parallel num_threads(threads) if (threads > 1 && rows * dim > 1 << 16)
    {
        std::vector<float> y(dim);
#pragma omp for
        for (int64_t r = 0; r < rows; r++) {
            normalize(x + r * dim, weight, dim, epsilon, offset, rounds, y.data());
            for (int64_t i = 0; i < dim; i++) narrow(y[i], out + r * dim + i);
        }
    }
}

inline vec activation(vec g, int32_t kind) {
    // SiLU, or GELU by tanh: (1 + tanh(y)) / 2 is 1 / (1 + exp(-2y)).
    vec y = kind == 0 ? g : 1.5957691216f * (g + 0.044715f * g * g * g);
    return g / (1.0f + exponential(-y));
}

template <class T>
void gate(const T* gate_up, T* out, int64_t rows, int64_t dim, int32_t kind, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1 && rows * dim > 1 << 16)
    for (int64_t r = 0; r < rows; r++) {
        const T *gates = gate_up + r * 2 * dim, *ups = gates + dim;
        for (int64_t d = 0; d < dim; d += LANES)
            store(out + r * dim + d, activation(load(gates + d), kind) * load(ups + d));
    }
}

// First index of the largest, where a number that is none counts as the largest of all, as torch has it.
template <class T>
int64_t largest(const T* x, int64_t count) {
    int64_t i = 0;
    vec most = splat(-INFINITY), odd{};
    for (; i + LANES <= count; i += LANES) {
        vec v = load(x + i);
        most = larger(v, most);
        odd += v * 0.0f;
    }
    float best = max(most);
    bool whole = sum(odd) == 0;  // neither an infinity nor a NaN
    for (; i < count; i++) {
        best = std::max(best, widen(x[i]));
        whole = whole && std::isfinite(widen(x[i]));
    }
    if (!whole)
        for (i = 0; i < count; i++)
            if (widen(x[i]) != widen(x[i])) return i;
    for (i = 0; i < count; i++)
        if (widen(x[i]) == best) return i;
    return 0;
}

template <class T>
void argmax(const T* x, int64_t* out, int64_t rows, int64_t columns, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1 && rows > 1)
    for (int64_t r = 0; r < rows; r++) out[r] = largest(x + r * columns, columns);
}

}  // namespace

extern "C" {

void signalbox_attend(const Attention* a) { a->is_bf16 ? attend<bf16>(*a) : attend<float>(*a); }

void signalbox_rope_and_write(const Rope* r) {
    r->is_bf16 ? rope_and_write<bf16>(*r) : rope_and_write<float>(*r);
}

void signalbox_rms_norm(const void* x, const void* weight, void* out, int64_t rows, int64_t dim, float epsilon,
                        float offset, int32_t rounds, int32_t is_bf16, int32_t threads) {
    if (is_bf16)
        rms_norm((const bf16*)x, (const bf16*)weight, (bf16*)out, rows, dim, epsilon, offset, rounds, threads);
    else
        rms_norm((const float*)x, (const float*)weight, (float*)out, rows, dim, epsilon, offset, rounds, threads);
}

void signalbox_gate(const void* gate_up, void* out, int64_t rows, int64_t dim, int32_t kind, int32_t is_bf16,
                    int32_t threads) {
    if (is_bf16) gate((const bf16*)gate_up, (bf16*)out, rows, dim, kind, threads);
    else gate((const float*)gate_up, (float*)out, rows, dim, kind, threads);
}

void signalbox_argmax(const void* x, int64_t* out, int64_t rows, int64_t columns, int32_t is_bf16,
                      int32_t threads) {
    if (is_bf16) argmax((const bf16*)x, out, rows, columns, threads);
    else argmax((const float*)x, out, rows, columns, threads);
}

}
