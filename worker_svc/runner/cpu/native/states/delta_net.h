// A gated delta net between its projections: convolution, the delta rule token by token, norm and gate.
//
// Source: Yang, Kautz, Hatamizadeh, "Gated Delta Networks", https://arxiv.org/abs/2412.06464, equation 10. With a decay
// for each channel of a key: Kimi Team, "Kimi Linear", https://arxiv.org/abs/2510.26692, equation 1.
//
// A token's result and the state behind it are the same bit for bit wherever a sequence is cut and whatever other rows
// there are: each column of a state is computed by itself, over the keys in order.
#pragma once

#include <cmath>
#include <vector>

#include "convolution.h"
#include "delta_rule.h"

// Fields as in structs.py. No row of the states is read and written in one call.
struct DeltaNet {
    const void* projected;  // [tokens, width] of each: queries, keys, values, gates, updates, decays, and what else
    const void *gates, *decays;  // [tokens, value heads, dim] by channel, instead of those; both null: by head
    const float* conv_weight;  // [kernel, channels]
    const float *rates, *step_bias;  // [value heads]; the bias [value heads, key_dim] by channel
    const float* norm_weight;  // [value_dim]
    void* inputs;  // [rows of the store, channels, kernel]
    float* states;  // [rows of the store, value heads, key_dim, value_dim]
    const int32_t *query_starts, *sources, *targets;  // source below 0: the sequence begins
    void* out;  // [tokens, value heads, value_dim]
    int64_t num_rows, num_key_heads, num_value_heads, key_dim, value_dim, width, kernel;
    float epsilon, update_scale;
    int32_t is_bf16, num_threads;
};

namespace {

constexpr int64_t SCANNED = 32;  // tokens at a time, while some columns of the state stay in the first level cache

// What a thread needs of one head for a piece of its tokens.
struct HeadScratch {
    std::vector<float> queries, keys, values, out, block;
    std::vector<float> faded_queries, faded_keys, decays;  // by channel
    Token tokens[SCANNED];

    void fit(int64_t key_dim, int64_t value_dim, bool by_channel) {
        queries.resize(SCANNED * key_dim), keys.resize(SCANNED * key_dim);
        if (by_channel)
            for (auto* each : {&faded_queries, &faded_keys, &decays}) each->resize(SCANNED * key_dim);
        values.resize(SCANNED * value_dim), out.resize(SCANNED * value_dim);
        block.resize(key_dim * WIDE * LANES);
    }
};

// One head of one row.
template <class T, bool BY_CHANNEL>
struct DeltaHead {
    const DeltaNet& d;
    int64_t row, head, key_head, padded_keys, channels;

    DeltaHead(const DeltaNet& d, int64_t row, int64_t head) : d(d), row(row), head(head) {
        key_head = head / (d.num_value_heads / d.num_key_heads);
        padded_keys = (d.key_dim + LANES - 1) / LANES * LANES;
        channels = 2 * d.num_key_heads * d.key_dim + d.num_value_heads * d.value_dim;
    }

    void run() const {
        static thread_local HeadScratch s;
        s.fit(padded_keys, d.value_dim, BY_CHANNEL);
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
        Columns<N, BY_CHANNEL> columns{d.key_dim, column};
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
        Columns<N, BY_CHANNEL> columns{d.key_dim, column};
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
        Inputs<Plain<T>> in{{(const T*)d.projected + first * d.width, d.width}, count, is_amid, before, behind};
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
        const float* value = &s.values[t * d.value_dim];
        Token made{query, key, value, query, key, nullptr, 1, 0, sum(products), &s.out[t * d.value_dim]};
        const T* updates = (const T*)d.projected + position * d.width + channels;
        if constexpr (BY_CHANNEL) fade(made, s, position, t);
        else {
            updates += d.num_value_heads * d.value_dim;
            const float x = widen(updates[d.num_value_heads + head]) + d.step_bias[head];
            made.decay = std::exp(-d.rates[head] * (x > 20 ? x : std::log1p(std::exp(x))));
        }
        made.update = d.update_scale * rounded<T>(1 / (1 + std::exp(-widen(updates[head]))));
        return made;
    }

    // The decays of a token's channels, and what they leave of its query and key.
    void fade(Token& token, HeadScratch& s, int64_t position, int64_t t) const {
        const T* raw = (const T*)d.decays + (position * d.num_value_heads + head) * d.key_dim;
        const float* bias = d.step_bias + head * d.key_dim;
        float *decays = &s.decays[t * padded_keys], *query = &s.faded_queries[t * padded_keys];
        float* key = &s.faded_keys[t * padded_keys];
        for (int64_t k = 0; k < d.key_dim; k += LANES) {
            const vec step = softplus(load_some(raw + k, d.key_dim - k) + load_some(bias + k, d.key_dim - k));
            const vec decay = exponential(-d.rates[head] * step);
            store(decays + k, decay);
            store(query + k, decay * load(token.query + k));
            store(key + k, decay * load(token.key + k));
        }
        token.decays = decays, token.asks_query = query, token.asks_key = key;
    }

    void to_unit(float* x, float scale) const {
        vec squares{};
        for (int64_t k = 0; k < padded_keys; k += LANES) squares += load(x + k) * load(x + k);
        const float inverse = 1 / std::sqrt(sum(squares) + 1e-6f);
        for (int64_t k = 0; k < padded_keys; k += LANES) store(x + k, load(x + k) * inverse * scale);
    }

    void norm_and_gate(const float* x, int64_t position) const {
        const int64_t at = (position * d.num_value_heads + head) * d.value_dim;
        const T* among = (const T*)d.projected + position * d.width + channels + head * d.value_dim;
        const T* gates = BY_CHANNEL ? (const T*)d.gates + at : among;
        T* out = (T*)d.out + at;
        vec squares{};
        for (int64_t c = 0; c < d.value_dim; c += LANES) {
            const vec v = rounded<T>(load(x + c));
            squares += v * v;
        }
        const float inverse = 1 / std::sqrt(sum(squares) / d.value_dim + d.epsilon);
        for (int64_t c = 0; c < d.value_dim; c += LANES) {
            const vec normal = rounded<T>(load(x + c)) * inverse, weight = load(d.norm_weight + c);
            const vec gate = load(gates + c), below = 1.0f + exponential(-gate);
            if constexpr (BY_CHANNEL) store(out + c, weight * normal / below);
            else store(out + c, rounded<T>(weight * rounded<T>(normal)) * (gate / below));
        }
    }
};

template <class T, bool BY_CHANNEL>
void run_delta_heads(const DeltaNet& d) {
    const int64_t tasks = d.num_rows * d.num_value_heads;
    const int64_t bytes = tasks * d.key_dim * d.value_dim * sizeof(float);
#pragma omp parallel for schedule(dynamic) num_threads(d.num_threads) if (d.num_threads > 1 && bytes > PARALLEL_BYTES)
    for (int64_t i = 0; i < tasks; i++) {
        const int64_t row = i / d.num_value_heads;
        if (d.query_starts[row] < d.query_starts[row + 1])
            DeltaHead<T, BY_CHANNEL>(d, row, i % d.num_value_heads).run();
    }
}

template <class T>
void run_delta_net(const DeltaNet& d) {
    d.decays ? run_delta_heads<T, true>(d) : run_delta_heads<T, false>(d);
}

}  // namespace
