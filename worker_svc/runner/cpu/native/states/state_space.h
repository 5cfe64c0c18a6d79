// A Mamba 2 layer between its projections: convolution, the state space token by token, gate and norm.
//
// Source: Dao, Gu, "Transformers are SSMs", https://arxiv.org/abs/2405.21060, equations 1 and 2 with a scalar decay.
//
// A token's result and the state behind it are the same bit for bit wherever a sequence is cut and whatever other rows
// there are: each row of a state is computed by itself, in one order.
#pragma once

#include <cmath>
#include <vector>

#include "convolution.h"
#include "past.h"

// Fields as in structs.py. No row of the states is read and written in one call.
struct StateSpace {
    const void* projected;  // [tokens, width] of each: gates, inputs, their ins and outs of each group, steps
    const float *conv_weight, *conv_bias;  // [kernel, channels], [channels]; the bias may be null
    const float *rates, *step_bias, *skips;  // [heads]
    const float* scales;  // [width] what the projected are multiplied by; null: they are taken as they are
    const float* norm_weight;  // [heads * head_dim]; null: nothing is normed
    void* inputs;  // [rows of the store, channels, kernel]
    float* states;  // [rows of the store, heads, head_dim, state_dim]
    const int32_t *query_starts, *sources, *targets;  // source below 0: the sequence begins
    void* convolved;  // [tokens, channels], to work in
    void* out;  // [tokens, heads, head_dim]
    int64_t num_rows, num_heads, num_groups, head_dim, state_dim, kernel;
    int64_t norm_dim;  // numbers that are normed together
    float epsilon, least_step;
    int32_t norms_first;  // ahead of the gate, not behind it
    int32_t is_bf16, num_threads;
};

namespace {

#if defined(__AVX512F__)
constexpr int STATE_VECTORS = 16;  // of a head's state at a time, as many as registers hold
#else
constexpr int STATE_VECTORS = 4;
#endif
constexpr int64_t SSM_TOKENS = 16;  // tokens at a time, while a piece of the state stays in registers
constexpr int64_t CONVOLVED_CHANNELS = 256;  // of a task

// What a thread needs of one head for a piece of its tokens.
struct SpaceScratch {
    std::vector<float> inputs, ins, outs;
    float decays[SSM_TOKENS], steps[SSM_TOKENS];

    void fit(int64_t head_dim, int64_t state_dim) {
        inputs.resize(SSM_TOKENS * head_dim);
        ins.resize(SSM_TOKENS * state_dim), outs.resize(SSM_TOKENS * state_dim);
    }
};

template <class T>
struct StateSpaceRun {
    const StateSpace& d;
    int64_t inner, channels, width;

    explicit StateSpaceRun(const StateSpace& d) : d(d) {
        inner = d.num_heads * d.head_dim;
        channels = inner + 2 * d.num_groups * d.state_dim;
        width = inner + channels + d.num_heads;
    }

    bool is_empty(int64_t row) const { return d.query_starts[row] == d.query_starts[row + 1]; }

    // One of the projected numbers of a token.
    float projected(int64_t token, int64_t index) const {
        const float x = widen(((const T*)d.projected)[token * width + index]);
        return d.scales ? rounded<T>(x * d.scales[index]) : x;
    }

    // Some channels of all tokens of a row, from `first` on.
    void convolve_row(int64_t row, int64_t first) const {
        const T* x = (const T*)d.projected + d.query_starts[row] * width + inner;
        if (d.scales) convolve_from(Scaled<T>{x, width, d.scales + inner}, row, first);
        else convolve_from(Plain<T>{x, width}, row, first);
    }

    template <class Source>
    void convolve_from(const Source& source, int64_t row, int64_t first) const {
        const int64_t start = d.query_starts[row], size = channels * d.kernel;
        const T* before = d.sources[row] < 0 ? nullptr : (const T*)d.inputs + d.sources[row] * size;
        T* behind = (T*)d.inputs + d.targets[row] * size;
        const Inputs<Source> in{source, d.query_starts[row + 1] - start, false, before, behind};
        T* to = (T*)d.convolved + start * channels + first;
        const int64_t count = std::min(CONVOLVED_CHANNELS, channels - first);
        convolve(d.kernel, d.conv_weight, d.conv_bias, channels, in, first, count,
                 [&](int64_t t, int64_t at, vec v) { store_some(to + t * channels + at, silu<T>(v), count - at); });
    }

    void run_head(int64_t row, int64_t head) const {
        static thread_local SpaceScratch s;
        s.fit(d.head_dim, d.state_dim);
        const int64_t start = d.query_starts[row], end = d.query_starts[row + 1], size = d.head_dim * d.state_dim;
        const int32_t source = d.sources[row];
        float* to = d.states + (d.targets[row] * d.num_heads + head) * size;
        const float* from = source < 0 ? nullptr : d.states + (source * d.num_heads + head) * size;
        const bool is_past = end - start == 1 && (uintptr_t)to % sizeof(vec) == 0;
        for (int64_t first = start; first < end; first += SSM_TOKENS) {
            const int64_t count = std::min(SSM_TOKENS, end - first);
            for (int64_t t = 0; t < count; t++) read_token(s, head, first + t, t);
            T* out = (T*)d.out + first * inner + head * d.head_dim;
            switch (d.state_dim / LANES) {
                case 1: over_rows<1>(s, head, count, from, to, is_past, out); break;
                case 2: over_rows<2>(s, head, count, from, to, is_past, out); break;
                case 4: over_rows<4>(s, head, count, from, to, is_past, out); break;
                case 8: over_rows<8>(s, head, count, from, to, is_past, out); break;
                default: over_rows<16>(s, head, count, from, to, is_past, out);
            }
            from = to;
        }
        end_stores_past();
    }

    void read_token(SpaceScratch& s, int64_t head, int64_t token, int64_t t) const {
        const T* x = (const T*)d.convolved + token * channels;
        const T* in = x + inner + head / (d.num_heads / d.num_groups) * d.state_dim;
        for (int64_t p = 0; p < d.head_dim; p++) s.inputs[t * d.head_dim + p] = widen(x[head * d.head_dim + p]);
        for (int64_t n = 0; n < d.state_dim; n += LANES) {
            store(&s.ins[t * d.state_dim + n], load(in + n));
            store(&s.outs[t * d.state_dim + n], load(in + d.num_groups * d.state_dim + n));
        }
        const float raw = projected(token, inner + channels + head) + d.step_bias[head];
        s.steps[t] = std::max(raw > 20 ? raw : std::log1p(std::exp(raw)), d.least_step);
        s.decays[t] = std::exp(-d.rates[head] * s.steps[t]);
    }

    // All rows of a head's state, as many at a time as registers hold; N vectors each.
    template <int N>
    void over_rows(const SpaceScratch& s, int64_t head, int64_t count, const float* from, float* to, bool is_past,
                   T* out) const {
        constexpr int ROWS = STATE_VECTORS > N ? STATE_VECTORS / N : 1;
        int64_t row = 0;
        for (; row + ROWS <= d.head_dim; row += ROWS) scan<N, ROWS>(s, head, count, from, to, row, is_past, out);
        for (; row < d.head_dim; row++) scan<N, 1>(s, head, count, from, to, row, is_past, out);
    }

    template <int N, int ROWS>
    void scan(const SpaceScratch& s, int64_t head, int64_t count, const float* from, float* to, int64_t first,
              bool is_past, T* out) const {
        constexpr int64_t DIM = N * LANES;
        vec state[ROWS][N];
        for (int r = 0; r < ROWS; r++)
            for (int n = 0; n < N; n++) state[r][n] = from ? load(from + (first + r) * DIM + n * LANES) : vec{};
        for (int64_t t = 0; t < count; t++) {
            const float *in = &s.ins[t * DIM], *read = &s.outs[t * DIM], *x = &s.inputs[t * d.head_dim + first];
            vec sums[ROWS] = {};
            float taken[ROWS];
            for (int r = 0; r < ROWS; r++) taken[r] = s.steps[t] * x[r];
            for (int n = 0; n < N; n++) {
                const vec write = load(in + n * LANES), look = load(read + n * LANES);
                for (int r = 0; r < ROWS; r++) {
                    state[r][n] = s.decays[t] * state[r][n] + taken[r] * write;
                    sums[r] += look * state[r][n];
                }
            }
            for (int r = 0; r < ROWS; r++) narrow(sum(sums[r]) + d.skips[head] * x[r], out + t * inner + first + r);
        }
        for (int r = 0; r < ROWS; r++)
            for (int n = 0; n < N; n++) {
                float* p = to + (first + r) * DIM + n * LANES;
                if (is_past) store_past(p, state[r][n]);
                else store(p, state[r][n]);
            }
    }

    void gate_and_norm(int64_t token) const {
        T* out = (T*)d.out + token * inner;
        const int64_t norm_dim = d.norm_weight ? d.norm_dim : inner;
        static thread_local std::vector<float> gated;
        gated.resize(norm_dim);
        for (int64_t first = 0; first < inner; first += norm_dim) {
            vec squares{};
            for (int64_t i = 0; i < norm_dim; i += LANES) {
                const vec x = load(out + first + i), v = d.norms_first ? x : x * gate(token, first + i);
                store(&gated[i], v);
                squares += v * v;
            }
            if (d.norm_weight) norm(token, first, sum(squares), gated.data());
            else
                for (int64_t i = 0; i < norm_dim; i += LANES) store(out + first + i, load(&gated[i]));
        }
    }

    // x * sigmoid(x) of 16 gates.
    vec gate(int64_t token, int64_t index) const {
        vec x = load((const T*)d.projected + token * width + index);
        if (d.scales) x = rounded<T>(x * load(d.scales + index));
        return x / (1.0f + exponential(-x));
    }

    void norm(int64_t token, int64_t first, float squares, const float* gated) const {
        T* out = (T*)d.out + token * inner + first;
        const float inverse = 1 / std::sqrt(squares / d.norm_dim + d.epsilon);
        for (int64_t i = 0; i < d.norm_dim; i += LANES) {
            const vec normal = load(d.norm_weight + first + i) * rounded<T>(load(gated + i) * inverse);
            store(out + i, d.norms_first ? normal * gate(token, first + i) : normal);
        }
    }
};

template <class T>
void run_state_space(const StateSpace& d) {
    const StateSpaceRun<T> run(d);
    const int64_t parts = (run.channels + CONVOLVED_CHANNELS - 1) / CONVOLVED_CHANNELS;
    const int64_t heads = d.num_rows * d.num_heads, bytes = heads * d.head_dim * d.state_dim * sizeof(float);
#pragma omp parallel num_threads(d.num_threads) if (d.num_threads > 1 && bytes > PARALLEL_BYTES)
    {
#pragma omp for schedule(dynamic)
        for (int64_t i = 0; i < d.num_rows * parts; i++)
            if (!run.is_empty(i / parts)) run.convolve_row(i / parts, i % parts * CONVOLVED_CHANNELS);
#pragma omp for schedule(dynamic, 4)
        for (int64_t i = 0; i < heads; i++)
            if (!run.is_empty(i / d.num_heads)) run.run_head(i / d.num_heads, i % d.num_heads);
#pragma omp for
        for (int64_t token = d.query_starts[0]; token < d.query_starts[d.num_rows]; token++) run.gate_and_norm(token);
    }
}

}  // namespace
