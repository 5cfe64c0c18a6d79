// Attention of prompts: queries in groups of 64 against keys in steps of 64, by the bfloat16 dot product, or by matrix
// units where these are used.
//
// A query's result is built from steps that lie at fixed positions and from nothing but its own keys, so it depends
// neither on the chunk that it came in nor on the other rows.
#pragma once

#include "../products/linear.h"
#include "../products/matrix_units.h"
#include "attention.h"

#ifdef SIGNALBOX_DOT

namespace {

constexpr int64_t QUERIES = 64, KEYS = 64;

struct Chunk {
    int64_t row, kv_head, start, end;  // query tokens [start, end) of the batch
};

inline std::vector<Chunk> plan_chunks(const Attention& a) {
    std::vector<Chunk> chunks;
    for (int64_t r = 0; r < a.num_rows; r++) {
        if (a.ways[r] != PROMPT) continue;
        // The last queries have the most keys: who takes the first tasks gets the largest.
        const int64_t start = a.query_starts[r], end = a.query_starts[r + 1];
        for (int64_t t = start + (end - start - 1) / QUERIES * QUERIES; t >= start; t -= QUERIES)
            for (int64_t h = 0; h < a.num_kv_heads; h++) chunks.push_back({r, h, t, std::min(t + QUERIES, end)});
    }
    return chunks;
}

// Pair i of vector j becomes pair j of vector i.
inline void transpose(vec (&v)[LANES]) {
    vec t[LANES];
    for (int i = 0; i < 4; i++)  // 4 x 4 pairs, of vectors 4 apart
        for (int j = 0; j < 2; j++) {
            const vec x = v[i + 8 * j], y = v[i + 8 * j + 4];
            t[i + 8 * j] = __builtin_shuffle(x, y, ivec{0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27});
            t[i + 8 * j + 4] = __builtin_shuffle(x, y,
                                                 ivec{4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31});
        }
    for (int i = 0; i < 8; i++) {  // and 8 apart
        v[i] = __builtin_shuffle(t[i], t[i + 8], ivec{0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23});
        v[i + 8] = __builtin_shuffle(t[i], t[i + 8],
                                     ivec{8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31});
    }
    for (int i = 0; i < LANES; i += 4) {  // and within four
        vec x[4], *y = v + i;
        for (int j = 0; j < 2; j++) {
            x[2 * j] = __builtin_shuffle(y[2 * j], y[2 * j + 1],
                                         ivec{0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30});
            x[2 * j + 1] = __builtin_shuffle(y[2 * j], y[2 * j + 1],
                                             ivec{1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31});
        }
        for (int j = 0; j < 2; j++) {
            y[j] = __builtin_shuffle(x[j], x[j + 2], ivec{0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29});
            y[j + 2] = __builtin_shuffle(x[j], x[j + 2],
                                         ivec{2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31});
        }
    }
}

// Keys and values of a step, in the order in which products take them.
struct Step {
    std::vector<bf16> keys;    // [2, dim / 2, 32 keys, 2]
    std::vector<bf16> values;  // [dim / 32, 32 pairs of keys, 32, 2]
    std::vector<bf16> nothing;  // in place of what follows the context, which may be anything: it must be a number

    void gather(const Attention& a, const Chunk& chunk, int64_t first, int64_t end) {
        const int64_t dim = a.key_dim, value_dim = a.value_dim, bs = a.block_size;
        const int32_t* table = a.block_tables + chunk.row * a.table_width;
        keys.resize(KEYS * dim);
        values.resize(KEYS * value_dim);
        nothing.resize(std::max(dim, value_dim));
        const bf16 *key[KEYS], *value[KEYS];
        for (int64_t j = 0; j < KEYS; j++) {
            key[j] = value[j] = nothing.data();
            if (j >= end - first) continue;
            const int64_t at = (table[(first + j) / bs] * a.num_kv_heads + chunk.kv_head) * bs + (first + j) % bs;
            key[j] = (const bf16*)a.keys + at * dim, value[j] = (const bf16*)a.values + at * a.value_stride;
        }
        for (int64_t j = 0; j < KEYS; j += LANES)
            for (int64_t d = 0; d < dim; d += 2 * LANES)
                take_keys(key + j, d, &keys[j / TILE * TILE * dim + j % TILE * 2 + d * TILE]);
        for (int64_t j = 0; j < KEYS; j += 2)
            for (int64_t d = 0; d < value_dim; d += TILE)
                take_values(value[j] + d, value[j + 1] + d, &values[d * KEYS + j * TILE]);
    }

  private:
    // 32 numbers of each of 16 keys from number d on: pair after pair, 32 keys apart.
    static void take_keys(const bf16** key, int64_t d, bf16* to) {
        vec pairs[LANES];
        for (int i = 0; i < LANES; i++) memcpy(&pairs[i], key[i] + d, sizeof(vec));
        transpose(pairs);
        for (int i = 0; i < LANES; i++) memcpy(to + i * 2 * TILE, &pairs[i], sizeof(vec));
    }

    // 32 numbers of each of two values, in pairs.
    static void take_values(const bf16* one, const bf16* other, bf16* to) {
        typedef uint16_t pairs __attribute__((vector_size(64)));
        pairs x, y;
        memcpy(&x, one, sizeof x);
        memcpy(&y, other, sizeof y);
        const pairs low = __builtin_shuffle(x, y, pairs{0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39,
                                                        8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47});
        const pairs high = __builtin_shuffle(
            x, y, pairs{16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
                        24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63});
        memcpy(to, &low, sizeof low);
        memcpy(to + TILE, &high, sizeof high);
    }
};

constexpr int64_t MOST_TOGETHER = 16;
inline int64_t queries_together() {
#ifdef SIGNALBOX_MATRIX_UNITS
    if (uses_matrix_units) return MOST_TOGETHER;
#endif
    return ROWS;
}

// Rows of one head whose results grow step by step.
struct Rows {
    float best[MOST_TOGETHER], total[MOST_TOGETHER];
};

inline void store_two(bf16* to, vec low, vec high) {
#ifdef __AVX512BF16__  // in one piece: it is read in one
    const __m512bh both = _mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
    memcpy(to, &both, sizeof both);
#else
    store(to, low);
    store(to + LANES, high);
#endif
}

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
            s[i] = s[i] > splat(-INFINITY) ? exponential(s[i] - best) : vec{};
            sums += s[i];
        }
        for (int i = 0; i < N; i += 2) store_two(weights[r] + i * LANES, s[i], s[i + 1]);
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

#ifdef SIGNALBOX_MATRIX_UNITS

// sums [rows, 32 * `T`] = `x` [rows, inputs] times `w` [T, inputs / 2, 32, 2]: added to what is there, or not. `T` is 1
// or 2.
template <int T>
inline void multiply_step(const bf16* x, int64_t stride, const bf16* w, int64_t inputs, float* sums, int64_t width,
                          bool adds) {
    const int64_t bytes = width * sizeof(float), pair_bytes = 2 * TILE * sizeof(bf16);
    const bf16* other = w + inputs * TILE;
    if (adds) {
        _tile_loadd(0, sums, bytes);
        _tile_loadd(1, sums + LANES, bytes);
        if (T == 2) _tile_loadd(2, sums + 2 * LANES, bytes);
        if (T == 2) _tile_loadd(3, sums + 3 * LANES, bytes);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t k = 0; k < inputs; k += STEP_INPUTS) {
        _tile_loadd(4, x + k, stride * sizeof(bf16));
        _tile_loadd(6, w + k * TILE, pair_bytes);
        _tile_loadd(7, w + k * TILE + 2 * LANES, pair_bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (T == 1) continue;
        _tile_loadd(6, other + k * TILE, pair_bytes);
        _tile_loadd(7, other + k * TILE + 2 * LANES, pair_bytes);
        _tile_dpbf16ps(2, 4, 6);
        _tile_dpbf16ps(3, 4, 7);
    }
    _tile_stored(0, sums, bytes);
    _tile_stored(1, sums + LANES, bytes);
    if (T == 2) _tile_stored(2, sums + 2 * LANES, bytes);
    if (T == 2) _tile_stored(3, sums + 3 * LANES, bytes);
}

// One step for up to 16 queries of one head, for so many of which the units are configured.
inline void attend_step_on_units(const Attention& a, const Step& step, int64_t count, const bf16* query,
                                 const int32_t* positions, int64_t first, Rows& rows, float* out) {
    alignas(64) float scores[MOST_TOGETHER][KEYS];
    alignas(64) bf16 weights[MOST_TOGETHER][KEYS];
    const auto written = [] { asm volatile("" ::: "memory"); };  // the compiler does not know that tiles are read
    written();
    multiply_step<2>(query, a.query_stride, step.keys.data(), a.key_dim, scores[0], KEYS, false);
    weigh_step(a, count, positions, first, scores, rows, out, weights);
    written();
    int64_t d = 0;
    for (; d + 2 * TILE <= a.value_dim; d += 2 * TILE)
        multiply_step<2>(weights[0], KEYS, &step.values[d * KEYS], KEYS, out + d, a.value_dim, true);
    if (d < a.value_dim) multiply_step<1>(weights[0], KEYS, &step.values[d * KEYS], KEYS, out + d, a.value_dim, true);
}

#endif

inline void attend_part(const Attention& a, const Step& step, int64_t count, const bf16* query,
                        const int32_t* positions, int64_t first, Rows& rows, float* out) {
#ifdef SIGNALBOX_MATRIX_UNITS
    if (uses_matrix_units) return attend_step_on_units(a, step, count, query, positions, first, rows, out);
#endif
    with_rows(count, [&](auto n) { attend_step<n()>(a, step, query, positions, first, rows, out); });
}

// Units while a chunk is computed, configured for so many rows as were asked for last.
class Units {
  public:
    void need([[maybe_unused]] int64_t count) {
#ifdef SIGNALBOX_MATRIX_UNITS
        if (uses_matrix_units && count != configured_) configure(count);
        configured_ = count;
#endif
    }
    ~Units() {
#ifdef SIGNALBOX_MATRIX_UNITS
        if (configured_ && uses_matrix_units) asm volatile("tilerelease");
#endif
    }

  private:
    [[maybe_unused]] int64_t configured_ = 0;
};

inline void attend_chunk(const Attention& a, const Chunk& chunk) {
    static thread_local Step step;
    static thread_local std::vector<float> out;
    static thread_local std::vector<Rows> rows;
    const int64_t group = a.num_heads / a.num_kv_heads, tokens = chunk.end - chunk.start;
    const int64_t together = queries_together(), parts = (tokens + together - 1) / together;
    const int32_t* positions = a.positions + chunk.start;
    out.assign(group * tokens * a.value_dim, 0.0f);
    rows.assign(group * parts, Rows());
    for (Rows& r : rows)
        for (int i = 0; i < MOST_TOGETHER; i++) r.best[i] = -INFINITY, r.total[i] = 0;
    Units units;
    const int64_t last = positions[tokens - 1] + 1;
    for (int64_t first = first_key(a, positions[0]) / KEYS * KEYS; first < last; first += KEYS) {
        step.gather(a, chunk, first, std::min(first + KEYS, last));
        for (int64_t g = 0; g < group; g++) {
            const bf16* query = (const bf16*)a.query + (chunk.kv_head * group + g) * a.key_dim;
            for (int64_t p = 0; p < parts; p++) {
                const int64_t t = p * together, count = std::min(together, tokens - t);
                if (positions[t + count - 1] < first || first_key(a, positions[t]) >= first + KEYS) continue;
                units.need(count);
                attend_part(a, step, count, query + (chunk.start + t) * a.query_stride, positions + t, first,
                            rows[g * parts + p], &out[(g * tokens + t) * a.value_dim]);
            }
        }
    }
    for (int64_t g = 0; g < group; g++) {
        const int64_t head = chunk.kv_head * group + g;
        for (int64_t t = 0; t < tokens; t++) {
            const Rows& r = rows[g * parts + t / together];
            float scale = 1.0f, total = r.total[t % together];
            if (a.sinks) {  // one more score, whose value is nothing
                const float most = std::max(r.best[t % together], a.sinks[head]);
                scale = std::exp(r.best[t % together] - most);
                total = total * scale + std::exp(a.sinks[head] - most);
            }
            bf16* to = (bf16*)a.out + (chunk.start + t) * a.out_stride + head * a.value_dim;
            for (int64_t d = 0; d < a.value_dim; d += LANES)
                store(to + d, load(&out[(g * tokens + t) * a.value_dim + d]) * (scale / total));
        }
    }
}

// All rows; dimensions are multiples of 32.
inline void attend_all(const Attention& a) {
    static thread_local std::vector<float> buffer;
    const Plan plan(a, sizeof(bf16), a.num_threads);
    const std::vector<Chunk> chunks = plan_chunks(a);
    const int64_t tasks = plan.tasks.size(), all = tasks + chunks.size();
    buffer.resize(plan.size);
    float* partials = buffer.data();  // of this thread, not of those that help
#pragma omp parallel num_threads(a.num_threads) if (a.num_threads > 1)
    {
#pragma omp for schedule(dynamic, 1)
        for (int64_t i = 0; i < all; i++)
            if (i < tasks) attend_task<bf16>(a, plan.tasks[i], partials);
            else attend_chunk(a, chunks[i - tasks]);
        if (plan.has_joins) {
#pragma omp for schedule(static)
            for (int64_t r = 0; r < a.num_rows; r++) join_row<bf16>(a, plan, r, partials);
        }
    }
}

}  // namespace

#endif
