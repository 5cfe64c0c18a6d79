// Attention of decode rows over the paged cache: one task per row and split of its context, over all heads.
#pragma once

#include "vectors.h"

// Fields as in kernels.py. Heads of a token lie together; all strides count elements.
struct Attention {
    const void *query, *keys, *values;
    void* out;
    const int32_t *query_starts, *positions, *block_tables;
    const float* sinks;
    int64_t query_stride, out_stride;
    int64_t num_rows, table_width, num_heads, num_kv_heads, key_dim, value_dim, block_size, window;
    int64_t value_stride;  // from position to position of a block: value_dim, or key_dim where values are parts of keys
    float scaling, softcap;
    int32_t is_bf16, num_threads;
};

namespace {

constexpr int64_t SPLIT = 128;  // positions that one attention task looks at

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
inline void add_values(const T* values, int64_t stride, int64_t dim, int64_t low, int64_t high, const float* weights,
                       int64_t weight_stride, float* out) {
    vec total[HEADS][CHUNKS];
    for (int g = 0; g < HEADS; g++)
        for (int c = 0; c < CHUNKS; c++) total[g][c] = load(out + g * dim + c * LANES);
    for (int64_t j = low; j < high; j++) {
        for (int c = 0; c < CHUNKS; c++) {
            vec v = load(values + j * stride + c * LANES);
            for (int g = 0; g < HEADS; g++) total[g][c] += weights[g * weight_stride + j] * v;
        }
    }
    for (int g = 0; g < HEADS; g++)
        for (int c = 0; c < CHUNKS; c++) store(out + g * dim + c * LANES, total[g][c]);
}
template <int HEADS, class T>
inline void add_values_of_heads(const T* values, int64_t stride, int64_t dim, int64_t low, int64_t high,
                                const float* weights, int64_t weight_stride, float* out) {
    int64_t d = 0;
    for (; d + 4 * LANES <= dim; d += 4 * LANES)
        add_values<HEADS, 4>(values + d, stride, dim, low, high, weights, weight_stride, out + d);
    for (; d < dim; d += LANES)
        add_values<HEADS, 1>(values + d, stride, dim, low, high, weights, weight_stride, out + d);
}

struct Task {
    int64_t row, start, end;  // keys [start, end), all of one split
    int64_t offset;  // of its partial results [query tokens, heads, value_dim + 2]: sums, largest score, sum of weights
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
void attend_split(const Attention& a, const Task& task, float* partials) {
    static thread_local std::vector<float> scores;
    const int64_t start_token = a.query_starts[task.row], tokens = a.query_starts[task.row + 1] - start_token;
    const int64_t group = a.num_heads / a.num_kv_heads, bs = a.block_size;
    const int64_t base = task.start / SPLIT * SPLIT, width = SPLIT + bs + LANES;
    const int64_t stride = a.value_dim + 2, key_bytes = bs * a.key_dim * sizeof(T);
    const int64_t value_bytes = bs * a.value_stride * sizeof(T);
    const int32_t* table = a.block_tables + task.row * a.table_width;
    const T *keys = (const T*)a.keys, *values = (const T*)a.values;
    const int64_t first_block = task.start / bs, last_block = (task.end - 1) / bs;
    scores.resize(tokens * a.num_heads * width);
    auto key_block = [&](int64_t b, int64_t h) {
        return keys + (table[b] * a.num_kv_heads + h) * bs * a.key_dim;
    };
    auto value_block = [&](int64_t b, int64_t h) {
        return values + (table[b] * a.num_kv_heads + h) * bs * a.value_stride;
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
            float* partial = partials + task.offset + (t * a.num_heads + g) * stride;
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
                    add_values_of_heads<4>(block, a.value_stride, a.value_dim, j0, j1, weights(), width, out());
                for (; g + 2 <= end; g += 2)
                    add_values_of_heads<2>(block, a.value_stride, a.value_dim, j0, j1, weights(), width, out());
                for (; g < end; g++)
                    add_values_of_heads<1>(block, a.value_stride, a.value_dim, j0, j1, weights(), width, out());
            }
        }
        for (int64_t g = 0; g < a.num_heads; g++)
            std::copy_n(&sums[g * a.value_dim], a.value_dim,
                        partials + task.offset + (t * a.num_heads + g) * stride);
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

// The tasks of a batch's rows of at most `most_tokens` tokens, the same for all layers of one window.
struct Plan {
    std::vector<Task> tasks;
    std::vector<int64_t> row_tasks;  // [rows + 1] first task of each row
    int64_t size = 0, bytes = 0;  // floats of partial results; keys and values that are read

    Plan(const Attention& a, int64_t most_tokens, int64_t element_size) : row_tasks(1, 0) {
        for (int64_t r = 0; r < a.num_rows; r++) {
            const int64_t tokens = a.query_starts[r + 1] - a.query_starts[r];
            const int64_t start = first_key(a, a.positions[a.query_starts[r]]);
            const int64_t end = a.positions[a.query_starts[r + 1] - 1] + 1;
            for (int64_t k = start; k < end && tokens <= most_tokens; k = (k / SPLIT + 1) * SPLIT) {
                tasks.push_back({r, k, std::min(end, (k / SPLIT + 1) * SPLIT), size});
                size += tokens * a.num_heads * (a.value_dim + 2);
            }
            row_tasks.push_back(tasks.size());
            bytes += (end - start) * a.num_kv_heads * (a.key_dim + a.value_dim) * element_size;
        }
    }
};

template <class T>
void join_row(const Attention& a, const Plan& plan, int64_t row, const float* partials) {
    const int64_t start = a.query_starts[row], tokens = a.query_starts[row + 1] - start;
    const int64_t stride = a.value_dim + 2, step = tokens * a.num_heads * stride;
    const int64_t first = plan.row_tasks[row], splits = plan.row_tasks[row + 1] - first;
    if (!splits) return;  // not a row of this plan
    for (int64_t i = 0; i < tokens * a.num_heads; i++)
        join(a, partials + plan.tasks[first].offset + i * stride, splits, step, i % a.num_heads,
             (T*)a.out + (start + i / a.num_heads) * a.out_stride + i % a.num_heads * a.value_dim);
}

template <class T>
void attend(const Attention& a) {
    static thread_local std::vector<float> buffer;
    const Plan plan(a, INT64_MAX, sizeof(T));
    buffer.resize(plan.size);
    float* partials = buffer.data();  // of this thread, not of those that help
#pragma omp parallel num_threads(a.num_threads) if (a.num_threads > 1 && plan.bytes > PARALLEL_BYTES)
    {
#pragma omp for schedule(dynamic, 1)
        for (size_t i = 0; i < plan.tasks.size(); i++) attend_split<T>(a, plan.tasks[i], partials);
#pragma omp for schedule(static)
        for (int64_t r = 0; r < a.num_rows; r++) join_row<T>(a, plan, r, partials);
    }
}

}  // namespace
