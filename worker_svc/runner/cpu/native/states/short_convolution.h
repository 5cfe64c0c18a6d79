// A convolution that is a layer of its own, or the first part of one: its state is its last inputs alone.
//
// A token's result and the state behind it are the same bit for bit wherever a sequence is cut and whatever other rows
// there are: each channel is computed by itself.
#pragma once

#include "convolution.h"

// Fields as in structs.py. No row of the states is read and written in one call.
struct Convolution {
    const void* projected;  // [tokens, width]; gated: gates ahead, gates behind, inputs; else inputs, and what else
    const float *weight, *bias;  // [kernel, channels], [channels]; the bias may be null
    void* inputs;  // [rows of the store, channels, kernel]
    const int32_t *query_starts, *sources, *targets;  // source below 0: the sequence begins
    void* out;  // [tokens, channels]
    int64_t num_rows, channels, width, kernel;
    int32_t is_gated;  // by numbers ahead of it and behind it; else SiLU is behind it
    int32_t is_bf16, num_threads;
};

namespace {

constexpr int64_t SHORT_CHANNELS = 128;  // of a task

template <class T>
struct ConvolutionRun {
    const Convolution& d;

    // Some channels of all tokens of a row, from `first` on.
    void run(int64_t row, int64_t first) const {
        const int64_t start = d.query_starts[row];
        const T* x = (const T*)d.projected + start * d.width;
        T* out = (T*)d.out + start * d.channels + first;
        const int64_t count = std::min(SHORT_CHANNELS, d.channels - first);
        if (!d.is_gated) {
            convolve_row(Plain<T>{x, d.width}, row, first, count, [&](int64_t t, int64_t at, vec v) {
                store_some(out + t * d.channels + at, silu<T>(v), count - at);
            });
            return;
        }
        const T* behind = x + d.channels + first;
        convolve_row(Gated<T>{x + 2 * d.channels, d.width, 2 * d.channels}, row, first, count,
                     [&](int64_t t, int64_t at, vec v) {
                         const vec gate = load_some(behind + t * d.width + at, count - at);
                         store_some(out + t * d.channels + at, gate * v, count - at);
                     });
    }

    template <class Source, class Take>
    void convolve_row(const Source& source, int64_t row, int64_t first, int64_t count, Take&& take) const {
        const int64_t size = d.channels * d.kernel, num_tokens = d.query_starts[row + 1] - d.query_starts[row];
        const T* before = d.sources[row] < 0 ? nullptr : (const T*)d.inputs + d.sources[row] * size;
        T* behind = (T*)d.inputs + d.targets[row] * size;
        const Inputs<Source> in{source, num_tokens, false, before, behind};
        convolve(d.kernel, d.weight, d.bias, d.channels, in, first, count, take);
    }
};

template <class T>
void run_convolution(const Convolution& d) {
    const ConvolutionRun<T> run{d};
    const int64_t parts = (d.channels + SHORT_CHANNELS - 1) / SHORT_CHANNELS;
    const int64_t num_tokens = d.query_starts[d.num_rows] - d.query_starts[0];
    const int64_t bytes = (num_tokens * d.width + d.num_rows * d.channels * d.kernel) * sizeof(T);
#pragma omp parallel for schedule(dynamic) num_threads(d.num_threads) if (d.num_threads > 1 && bytes > PARALLEL_BYTES)
    for (int64_t i = 0; i < d.num_rows * parts; i++) {
        const int64_t row = i / parts;
        if (d.query_starts[row] < d.query_starts[row + 1]) run.run(row, i % parts * SHORT_CHANNELS);
    }
}

}  // namespace
