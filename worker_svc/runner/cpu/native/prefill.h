// Attention of prompts: queries in groups of 64 against keys in steps of 64, by the bfloat16 dot product.
//
// A query's result is built from steps that lie at fixed positions and from nothing but its own keys, so it depends
// neither on the chunk that it came in nor on the other rows.
#pragma once

#include "attention.h"
#include "linear.h"

#ifdef __AVX512BF16__

namespace {

constexpr int64_t QUERIES = 64, KEYS = 64;
constexpr int64_t FEWEST_QUERIES = 16;  // a row of fewer is cheaper as decode rows are, and goes their way wherever it stands

struct Chunk {
    int64_t row, kv_head, start, end;  // query tokens [start, end) of the batch
};

inline std::vector<Chunk> plan_chunks(const Attention& a) {
    std::vector<Chunk> chunks;
    for (int64_t r = 0; r < a.num_rows; r++) {
        if (a.query_starts[r + 1] - a.query_starts[r] < FEWEST_QUERIES) continue;
        for (int64_t t = a.query_starts[r]; t < a.query_starts[r + 1]; t += QUERIES)
            for (int64_t h = 0; h < a.num_kv_heads; h++)
                chunks.push_back({r, h, t, std::min<int64_t>(t + QUERIES, a.query_starts[r + 1])});
    }
    return chunks;
}

// Keys and values of a step, in the order in which products take them.
struct Step {
    std::vector<bf16> keys;    // [2, dim / 2, 32 keys, 2]
    std::vector<bf16> values;  // [dim / 32, 32 pairs of keys, 32, 2]

    void gather(const Attention& a, const Chunk& chunk, int64_t first, int64_t end) {
        const int64_t dim = a.key_dim, value_dim = a.value_dim, bs = a.block_size;
        const int32_t* table = a.block_tables + chunk.row * a.table_width;
        keys.resize(KEYS * dim);
        values.resize(KEYS * value_dim);
        if (end - first < KEYS) {  // what follows the context may be anything: it must be a number
            std::fill(keys.begin(), keys.end(), bf16{0});
            std::fill(values.begin(), values.end(), bf16{0});
        }
        for (int64_t j = 0; j < end - first; j++) {
            const int64_t at = (table[(first + j) / bs] * a.num_kv_heads + chunk.kv_head) * bs + (first + j) % bs;
            const bf16 *key = (const bf16*)a.keys + at * dim, *value = (const bf16*)a.values + at * a.value_stride;
            bf16* to = &keys[j / TILE * TILE * dim + j % TILE * 2];
            for (int64_t d = 0; d < dim; d += 2) memcpy(to + d * TILE, key + d, 4);
            to = &values[j / 2 * 2 * TILE + j % 2];
            for (int64_t d = 0; d < value_dim; d++) to[d / TILE * KEYS * TILE + d % TILE * 2] = value[d];
        }
    }
};

// Rows of one head whose results grow step by step.
struct Rows {
    float best[ROWS], total[ROWS];
};

// Scores of the queries at `position` and after it become weights; what was summed so far is scaled to match.
inline void weigh_step(const Attention& a, int count, const int32_t* positions, int64_t first, float (*scores)[KEYS],
                       Rows& rows, float* out, bf16 (*weights)[KEYS]) {
    constexpr int N = KEYS / LANES;
    for (int r = 0; r < count; r++) {
        const int64_t low = first_key(a, positions[r]) - first, high = positions[r] + 1 - first;
        vec s[N], most = splat(-INFINITY);
        for (int i = 0; i < N; i++) {
            s[i] = load(scores[r] + i * LANES) * a.scaling;
            if (a.softcap) s[i] = a.softcap * tanh_of(s[i] / a.softcap);
        }
        if (low > 0 || high < KEYS) {
            for (int i = 0; i < N; i++) {
                ivec key = ivec{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} + i * LANES;
                s[i] = (key >= int32_t(low)) & (key < int32_t(high)) ? s[i] : splat(-INFINITY);
            }
        }
        for (int i = 0; i < N; i++) most = larger(s[i], most);
        const float best = std::max(rows.best[r], max(most));
        vec sums{};
        for (int i = 0; i < N; i++) {
            vec w = s[i] > splat(-INFINITY) ? exponential(s[i] - best) : vec{};
            sums += w;
            store(weights[r] + i * LANES, w);
        }
        if (best > rows.best[r] && rows.best[r] > -INFINITY) {
            const float scale = std::exp(rows.best[r] - best);
            rows.total[r] *= scale;
            for (int64_t d = 0; d < a.value_dim; d += LANES)
                store(out + r * a.value_dim + d, load(out + r * a.value_dim + d) * scale);
        }
        rows.best[r] = best;
        rows.total[r] += sum(sums);
    }
}

// One step for up to 8 queries of one head.
template <int R>
inline void attend_step(const Attention& a, const Step& step, const bf16* query, const int32_t* positions,
                        int64_t first, Rows& rows, float* out) {
    alignas(64) float scores[ROWS][KEYS];
    alignas(64) bf16 weights[ROWS][KEYS];
    for (int half = 0; half < 2; half++) {
        vec total[R][2] = {};
        multiply<R, 2>(query, a.query_stride, &step.keys[half * TILE * a.key_dim], a.key_dim / 2, total);
        for (int r = 0; r < R; r++)
            for (int c = 0; c < 2; c++) store(scores[r] + half * TILE + c * LANES, total[r][c]);
    }
    weigh_step(a, R, positions, first, scores, rows, out, weights);
    for (int64_t d = 0; d < a.value_dim; d += TILE) {
        vec total[R][2];
        for (int r = 0; r < R; r++)
            for (int c = 0; c < 2; c++) total[r][c] = load(out + r * a.value_dim + d + c * LANES);
        multiply<R, 2>(weights[0], KEYS, &step.values[d * KEYS], KEYS / 2, total);
        for (int r = 0; r < R; r++)
            for (int c = 0; c < 2; c++) store(out + r * a.value_dim + d + c * LANES, total[r][c]);
    }
}

inline void attend_chunk(const Attention& a, const Chunk& chunk) {
    static thread_local Step step;
    static thread_local std::vector<float> out;
    static thread_local std::vector<Rows> rows;
    const int64_t group = a.num_heads / a.num_kv_heads, tokens = chunk.end - chunk.start;
    const int64_t parts = (tokens + ROWS - 1) / ROWS;
    const int32_t* positions = a.positions + chunk.start;
    out.assign(group * tokens * a.value_dim, 0.0f);
    rows.assign(group * parts, Rows());
    for (Rows& r : rows)
        for (int i = 0; i < ROWS; i++) r.best[i] = -INFINITY, r.total[i] = 0;
    const int64_t last = positions[tokens - 1] + 1;
    for (int64_t first = first_key(a, positions[0]) / KEYS * KEYS; first < last; first += KEYS) {
        step.gather(a, chunk, first, std::min(first + KEYS, last));
        for (int64_t g = 0; g < group; g++) {
            const bf16* query = (const bf16*)a.query + (chunk.kv_head * group + g) * a.key_dim;
            for (int64_t p = 0; p < parts; p++) {
                const int64_t t = p * ROWS, count = std::min<int64_t>(ROWS, tokens - t);
                if (positions[t + count - 1] < first || first_key(a, positions[t]) >= first + KEYS) continue;
                with_rows(count, [&](auto n) {
                    attend_step<n()>(a, step, query + (chunk.start + t) * a.query_stride, positions + t, first,
                                     rows[g * parts + p], &out[(g * tokens + t) * a.value_dim]);
                });
            }
        }
    }
    for (int64_t g = 0; g < group; g++) {
        const int64_t head = chunk.kv_head * group + g;
        for (int64_t t = 0; t < tokens; t++) {
            const Rows& r = rows[g * parts + t / ROWS];
            float scale = 1.0f, total = r.total[t % ROWS];
            if (a.sinks) {  // one more score, whose value is nothing
                const float most = std::max(r.best[t % ROWS], a.sinks[head]);
                scale = std::exp(r.best[t % ROWS] - most);
                total = total * scale + std::exp(a.sinks[head] - most);
            }
            bf16* to = (bf16*)a.out + (chunk.start + t) * a.out_stride + head * a.value_dim;
            for (int64_t d = 0; d < a.value_dim; d += LANES)
                store(to + d, load(&out[(g * tokens + t) * a.value_dim + d]) * (scale / total));
        }
    }
}

// Rows of any length; dimensions are multiples of 32.
inline void attend_all(const Attention& a) {
    static thread_local std::vector<float> buffer;
    const Plan plan(a, FEWEST_QUERIES - 1, sizeof(bf16));
    const std::vector<Chunk> chunks = plan_chunks(a);
    const int64_t tasks = plan.tasks.size(), all = tasks + chunks.size();
    buffer.resize(plan.size);
    float* partials = buffer.data();  // of this thread, not of those that help
#pragma omp parallel num_threads(a.num_threads) if (a.num_threads > 1)
    {
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < all; i++)
            if (i < tasks) attend_split<bf16>(a, plan.tasks[i], partials);
            else attend_chunk(a, chunks[i - tasks]);
#pragma omp for schedule(static)
        for (int64_t r = 0; r < a.num_rows; r++) join_row<bf16>(a, plan, r, partials);
    }
}

}  // namespace

#endif
