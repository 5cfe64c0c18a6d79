// The scan of a Mamba layer token by token, with norms ahead of it and the gate behind.
//
// Source: Gu, Dao, "Mamba", https://arxiv.org/abs/2312.00752, algorithm 2.
//
// A token's result and the state behind it are the same bit for bit wherever a sequence is cut and whatever other rows
// there are: the state of each channel is computed by itself, in one order.
#pragma once

#include <cmath>

#include "past.h"

// Fields as in structs.py. No row of the states is read and written in one call.
struct SelectiveScan {
    const void* projected;  // [tokens, 2 * channels]: inputs, which were convolved, and gates
    const void* convolved;  // [tokens, channels]
    const void* parts;  // [tokens, parts_width]: at the end a token's ins, and behind these its outs
    const void* steps;  // [tokens, channels]
    const float* rates;  // [channels, 16]
    const float *step_bias, *skips;  // [channels]
    const float *in_norm, *out_norm;  // [16]
    float* states;  // [rows of the store, channels, 16]
    const int32_t *query_starts, *sources, *targets;  // source below 0: the sequence begins
    float* normed;  // [tokens, 32], to work in
    void* out;  // [tokens, channels]
    int64_t num_rows, channels, parts_width;
    float in_epsilon, out_epsilon;
    int32_t is_bf16, num_threads;
};

namespace {

template <class T>
struct SelectiveScanRun {
    const SelectiveScan& d;

    // What a token writes to the state and what it reads with, normed.
    void norm(int64_t token) const {
        const T* ins = (const T*)d.parts + (token + 1) * d.parts_width - 2 * LANES;
        float* to = d.normed + token * 2 * LANES;
        store(to, normal(load(ins), d.in_norm, d.in_epsilon));
        store(to + LANES, normal(load(ins + LANES), d.out_norm, d.out_epsilon));
    }

    static vec normal(vec x, const float* weight, float epsilon) {
        const float inverse = 1 / std::sqrt(sum(x * x) / LANES + epsilon);
        return rounded<T>(load(weight) * rounded<T>(x * inverse));
    }

    // 16 channels of a row, from `first` on: a vector each.
    void scan(int64_t row, int64_t first) const {
        const int64_t start = d.query_starts[row], end = d.query_starts[row + 1], size = d.channels * LANES;
        const float* from = d.sources[row] < 0 ? nullptr : d.states + d.sources[row] * size + first * LANES;
        float* to = d.states + d.targets[row] * size + first * LANES;
        vec state[LANES];
        for (int c = 0; c < LANES; c++) state[c] = from ? load(from + c * LANES) : vec{};
        for (int64_t token = start; token < end; token++) move(state, token, first);
        const bool is_past = end - start == 1 && (uintptr_t)to % sizeof(vec) == 0;
        for (int c = 0; c < LANES; c++)
            if (is_past) store_past(to + c * LANES, state[c]);
            else store(to + c * LANES, state[c]);
        if (is_past) end_stores_past();
    }

    void move(vec* state, int64_t token, int64_t first) const {
        const int64_t at = token * d.channels + first;
        const vec x = load((const T*)d.convolved + at);
        const vec step = softplus(load((const T*)d.steps + at) + load(d.step_bias + first));
        const vec in = load(d.normed + token * 2 * LANES), read = load(d.normed + token * 2 * LANES + LANES);
        float steps[LANES], taken[LANES];
        store(steps, step), store(taken, step * x);
        vec seen[LANES];
        for (int c = 0; c < LANES; c++) {
            const vec decay = exponential(-steps[c] * load(d.rates + (first + c) * LANES));
            state[c] = decay * state[c] + taken[c] * in;
            seen[c] = state[c] * read;
        }
        const vec gate = load((const T*)d.projected + 2 * token * d.channels + d.channels + first);
        const vec y = sums_of_16(seen) + load(d.skips + first) * x;
        store((T*)d.out + at, y * (gate / (1.0f + exponential(-gate))));
    }
};

template <class T>
void run_selective_scan(const SelectiveScan& d) {
    const SelectiveScanRun<T> run{d};
    const int64_t parts = d.channels / LANES, num_tokens = d.query_starts[d.num_rows] - d.query_starts[0];
    const int64_t bytes = num_tokens * d.channels * LANES * sizeof(float);  // of states that are moved
#pragma omp parallel num_threads(d.num_threads) if (d.num_threads > 1 && bytes > PARALLEL_BYTES)
    {
#pragma omp for
        for (int64_t token = d.query_starts[0]; token < d.query_starts[d.num_rows]; token++) run.norm(token);
#pragma omp for schedule(dynamic, 4)
        for (int64_t i = 0; i < d.num_rows * parts; i++) {
            const int64_t row = i / parts;
            if (d.query_starts[row] < d.query_starts[row + 1]) run.scan(row, i % parts * LANES);
        }
    }
}

}  // namespace
