// A gated delta net between its projections: convolution, the delta rule token by token, norm and gate.
//
// Source: Yang, Kautz, Hatamizadeh, "Gated Delta Networks", https://arxiv.org/abs/2412.06464, equation 10.
//
// A token's result and the state behind it are the same bit for bit wherever a sequence is cut and whatever other rows
// there are: each column of a state is computed by itself, over the keys in order.
#pragma once

#include <cmath>
#include <vector>

#include "convolution.h"
#include "past.h"

// Fields as in structs.py. No row of the states is read and written in one call.
struct DeltaNet {
    const void* projected;  // [tokens, width] of each: queries, keys, values, gates, updates, decays
    const float* conv_weight;  // [kernel, channels]
    const float *rates, *step_bias;  // [value heads]
    const float* norm_weight;  // [value_dim]
    void* inputs;  // [rows of the store, channels, kernel]
    float* states;  // [rows of the store, value heads, key_dim, value_dim]
    const int32_t *query_starts, *sources, *targets;  // source below 0: the sequence begins
    void* out;  // [tokens, value heads, value_dim]
    int64_t num_rows, num_key_heads, num_value_heads, key_dim, value_dim, kernel;
    float epsilon, update_scale;
    int32_t is_bf16, num_threads;
};

namespace {

#if defined(__AVX512F__)
constexpr int WIDE = 4, WIDEST = 8;  // vectors of columns at a time, as many as registers hold: in scans, in steps
#elif defined(__aarch64__)
constexpr int WIDE = 4, WIDEST = 4;
#elif defined(__AVX2__)
constexpr int WIDE = 2, WIDEST = 2;
#else
constexpr int WIDE = 1, WIDEST = 1;
#endif
constexpr int64_t SCANNED = 32;  // tokens at a time, while some columns of the state stay in the first level cache

struct Token {
    const float *query, *key, *value;
    float decay, update, match;  // match: query times key
    float* out;
};

// N vectors of columns of a head's state, which the numbers of a row's tokens meet one after the other.
template <int N>
struct Columns {
    int64_t key_dim, first;  // of the columns
    vec of_key[N], of_query[N];  // what the state has for the key and for the query
    vec change[N];  // what the key is to give instead, less what it gives

    static vec moved(const Token& t, int64_t k, vec s, vec change) { return t.decay * s + t.key[k] * change; }

    void look_up(const Token& t, const float* from, int64_t stride) {
        for (int n = 0; n < N; n++) of_key[n] = of_query[n] = vec{};
        for (int64_t k = 0; k < key_dim; k++)
            for (int n = 0; n < N; n++) add(t, k, n, load(from + k * stride + n * LANES));
        answer(t);
    }

    // As `move` for the token before and then `look_up`, with one look at the state.
    void move_and_look_up(const Token& before, const Token& t, float* state, int64_t stride) {
        for (int n = 0; n < N; n++) of_key[n] = of_query[n] = vec{};
        for (int64_t k = 0; k < key_dim; k++)
            for (int n = 0; n < N; n++) {
                float* p = state + k * stride + n * LANES;
                const vec s = moved(before, k, load(p), change[n]);
                store(p, s);
                add(t, k, n, s);
            }
        answer(t);
    }

    template <bool PAST>
    void move(const Token& t, const float* from, float* to, int64_t from_stride, int64_t to_stride) const {
        for (int64_t k = 0; k < key_dim; k++)
            for (int n = 0; n < N; n++) {
                const vec s = moved(t, k, load(from + k * from_stride + n * LANES), change[n]);
                if (PAST) store_past(to + k * to_stride + n * LANES, s);
                else store(to + k * to_stride + n * LANES, s);
            }
    }

    void add(const Token& t, int64_t k, int n, vec s) {
        of_key[n] += t.key[k] * s;
        of_query[n] += t.query[k] * s;
    }

    void answer(const Token& t) {
        for (int n = 0; n < N; n++) {
            change[n] = (load(t.value + first + n * LANES) - t.decay * of_key[n]) * t.update;
            store(t.out + first + n * LANES, t.decay * of_query[n] + t.match * change[n]);
        }
    }
};

// f<N>(column) over all columns, N vectors at a time; the rest in fewer.
template <int N, class F>
inline void over_columns(int64_t first, int64_t end, F&& f) {
    for (; end - first >= N * LANES; first += N * LANES) f.template operator()<N>(first);
    if constexpr (N > 1) over_columns<N / 2>(first, end, f);
}

// What a thread needs of one head for a piece of its tokens.
struct HeadScratch {
    std::vector<float> queries, keys, values, out, block;
    Token tokens[SCANNED];

    void fit(int64_t key_dim, int64_t value_dim) {
        queries.resize(SCANNED * key_dim), keys.resize(SCANNED * key_dim);
        values.resize(SCANNED * value_dim), out.resize(SCANNED * value_dim);
        block.resize(key_dim * WIDE * LANES);
    }
};

// One head of one row.
template <class T>
struct DeltaHead {
    const DeltaNet& d;
    int64_t row, head, key_head, padded_keys, channels, width;

    DeltaHead(const DeltaNet& d, int64_t row, int64_t head) : d(d), row(row), head(head) {
        key_head = head / (d.num_value_heads / d.num_key_heads);
        padded_keys = (d.key_dim + LANES - 1) / LANES * LANES;
        channels = 2 * d.num_key_heads * d.key_dim + d.num_value_heads * d.value_dim;
        width = channels + d.num_value_heads * (d.value_dim + 2);
    }

    void run() const {
        static thread_local HeadScratch s;
        s.fit(padded_keys, d.value_dim);
        const int64_t start = d.query_starts[row], end = d.query_starts[row + 1], size = d.key_dim * d.value_dim;
        const int32_t source = d.sources[row];
        float* to = d.states + (d.targets[row] * d.num_value_heads + head) * size;
        const float* from = source < 0 ? nullptr : d.states + (source * d.num_value_heads + head) * size;
        for (int64_t first = start; first < end; first += SCANNED) {
            const int64_t count = std::min(SCANNED, end - first);
            convolve_inputs(s, first, count, first > start, first + count == end);
            for (int64_t t = 0; t < count; t++) s.tokens[t] = token(s, first + t, t);
            const bool is_step = end - start == 1 && from && (uintptr_t)to % sizeof(vec) == 0;
            if (is_step)
                over_columns<WIDEST>(0, d.value_dim, [&]<int N>(int64_t c) { step<N>(s.tokens[0], from, to, c); });
            else
                over_columns<WIDE>(0, d.value_dim, [&]<int N>(int64_t c) { scan<N>(s, count, from, to, c); });
            for (int64_t t = 0; t < count; t++) norm_and_gate(s.tokens[t].out, first + t);
            from = to;
        }
        end_stores_past();
    }

    template <int N>
    void step(const Token& t, const float* from, float* to, int64_t column) const {
        Columns<N> columns{d.key_dim, column};
        columns.look_up(t, from + column, d.value_dim);
        columns.template move<true>(t, from + column, to + column, d.value_dim, d.value_dim);
    }

    template <int N>
    void scan(HeadScratch& s, int64_t count, const float* from, float* to, int64_t column) const {
        float* block = s.block.data();
        const int64_t stride = N * LANES;
        for (int64_t k = 0; k < d.key_dim; k++)
            for (int n = 0; n < N; n++)
                store(block + k * stride + n * LANES,
                      from ? load(from + k * d.value_dim + column + n * LANES) : vec{});
        Columns<N> columns{d.key_dim, column};
        columns.look_up(s.tokens[0], block, stride);
        for (int64_t t = 1; t < count; t++)
            columns.move_and_look_up(s.tokens[t - 1], s.tokens[t], block, stride);
        columns.template move<false>(s.tokens[count - 1], block, to + column, stride, d.value_dim);
    }

    // Queries, keys and values of `count` tokens from `first` on. Value heads may share a key head: one of them keeps
    // its inputs.
    void convolve_inputs(HeadScratch& s, int64_t first, int64_t count, bool is_amid, bool is_last) const {
        const int64_t size = channels * d.kernel, keys = d.num_key_heads * d.key_dim;
        const T* before = d.sources[row] < 0 ? nullptr : (const T*)d.inputs + d.sources[row] * size;
        T* behind = is_last ? (T*)d.inputs + d.targets[row] * size : nullptr;
        Inputs<Plain<T>> in{{(const T*)d.projected + first * width, width}, count, is_amid, before, behind};
        run_channels(in, 2 * keys + head * d.value_dim, d.value_dim, s.values.data(), d.value_dim);
        if (head % (d.num_value_heads / d.num_key_heads)) in.behind = nullptr;
        run_channels(in, key_head * d.key_dim, d.key_dim, s.queries.data(), padded_keys);
        run_channels(in, keys + key_head * d.key_dim, d.key_dim, s.keys.data(), padded_keys);
    }

    void run_channels(const Inputs<Plain<T>>& in, int64_t first, int64_t count, float* to, int64_t stride) const {
        convolve(d.kernel, d.conv_weight, nullptr, channels, in, first, count,
                 [&](int64_t t, int64_t offset, vec v) { store(to + t * stride + offset, silu<T>(v)); });
    }

    Token token(HeadScratch& s, int64_t position, int64_t t) const {
        float *query = &s.queries[t * padded_keys], *key = &s.keys[t * padded_keys];
        to_unit(query, 1 / std::sqrt(float(d.key_dim)));
        to_unit(key, 1);
        vec products{};
        for (int64_t k = 0; k < padded_keys; k += LANES) products += load(query + k) * load(key + k);
        const T* heads = (const T*)d.projected + position * width + width - 2 * d.num_value_heads;
        const float x = widen(heads[d.num_value_heads + head]) + d.step_bias[head];
        const float step = x > 20 ? x : std::log1p(std::exp(x));
        const float update = d.update_scale * rounded<T>(1 / (1 + std::exp(-widen(heads[head]))));
        return {query, key, &s.values[t * d.value_dim], std::exp(-d.rates[head] * step), update, sum(products),
                &s.out[t * d.value_dim]};
    }

    void to_unit(float* x, float scale) const {
        vec squares{};
        for (int64_t k = 0; k < padded_keys; k += LANES) squares += load(x + k) * load(x + k);
        const float inverse = 1 / std::sqrt(sum(squares) + 1e-6f);
        for (int64_t k = 0; k < padded_keys; k += LANES) store(x + k, load(x + k) * inverse * scale);
    }

    void norm_and_gate(const float* x, int64_t position) const {
        const T* gates = (const T*)d.projected + position * width + channels + head * d.value_dim;
        T* out = (T*)d.out + (position * d.num_value_heads + head) * d.value_dim;
        vec squares{};
        for (int64_t c = 0; c < d.value_dim; c += LANES) {
            const vec v = rounded<T>(load(x + c));
            squares += v * v;
        }
        const float inverse = 1 / std::sqrt(sum(squares) / d.value_dim + d.epsilon);
        for (int64_t c = 0; c < d.value_dim; c += LANES) {
            const vec normal = rounded<T>(rounded<T>(load(x + c)) * inverse), gate = load(gates + c);
            store(out + c, rounded<T>(load(d.norm_weight + c) * normal) * (gate / (1.0f + exponential(-gate))));
        }
    }
};

template <class T>
void run_delta_net(const DeltaNet& d) {
    const int64_t tasks = d.num_rows * d.num_value_heads;
    const int64_t bytes = tasks * d.key_dim * d.value_dim * sizeof(float);
#pragma omp parallel for schedule(dynamic) num_threads(d.num_threads) if (d.num_threads > 1 && bytes > PARALLEL_BYTES)
    for (int64_t i = 0; i < tasks; i++) {
        const int64_t row = i / d.num_value_heads;
        if (d.query_starts[row] < d.query_starts[row + 1]) DeltaHead<T>(d, row, i % d.num_value_heads).run();
    }
}

}  // namespace
