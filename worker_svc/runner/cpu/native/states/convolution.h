// The causal convolution of each channel over its last inputs, which a sequence carries along.
#pragma once

#include "../vectors.h"

namespace {

// Up to 16 numbers that lie together; behind them come zeros.
template <class T>
inline vec load_some(const T* p, int64_t count) {
    if (count >= LANES) return load(p);
    vec v{};
    for (int64_t i = 0; i < count; i++) v[i] = widen(p[i]);
    return v;
}
template <class T>
inline void store_some(T* p, vec v, int64_t count) {
    if (count >= LANES) return store(p, v);
    for (int64_t i = 0; i < count; i++) narrow(v[i], p + i);
}

// x * sigmoid(x), rounded to the model's numbers.
template <class T>
inline vec silu(vec x) { return rounded<T>(x / (1.0f + exponential(-x))); }

// The last K inputs of 16 channels, each channel's together, the oldest first; and back.
template <int K, class T>
inline void read_inputs(const T* p, int64_t count, vec* inputs) {
    if constexpr (K == 4) {
        if (count >= LANES) {
            const vec a = load(p), b = load(p + 16), c = load(p + 32), d = load(p + 48);
            const ivec low{0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29}, high = low + 2;
            const ivec first{0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23}, second = first + 8;
            const vec ab = __builtin_shuffle(a, b, low), cd = __builtin_shuffle(c, d, low);
            const vec ab2 = __builtin_shuffle(a, b, high), cd2 = __builtin_shuffle(c, d, high);
            inputs[0] = __builtin_shuffle(ab, cd, first), inputs[1] = __builtin_shuffle(ab, cd, second);
            inputs[2] = __builtin_shuffle(ab2, cd2, first), inputs[3] = __builtin_shuffle(ab2, cd2, second);
            return;
        }
    }
    for (int k = 0; k < K; k++) {
        inputs[k] = vec{};
        for (int64_t i = 0; i < std::min<int64_t>(count, LANES); i++) inputs[k][i] = widen(p[i * K + k]);
    }
}
template <int K, class T>
inline void write_inputs(T* p, int64_t count, const vec* inputs) {
    if constexpr (K == 4) {
        if (count >= LANES) {
            const ivec pairs{0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23}, later = pairs + 8;
            const ivec fours{0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23}, behind = fours + 8;
            const vec a = __builtin_shuffle(inputs[0], inputs[1], pairs);
            const vec b = __builtin_shuffle(inputs[2], inputs[3], pairs);
            const vec c = __builtin_shuffle(inputs[0], inputs[1], later);
            const vec d = __builtin_shuffle(inputs[2], inputs[3], later);
            store(p, __builtin_shuffle(a, b, fours)), store(p + 16, __builtin_shuffle(a, b, behind));
            store(p + 32, __builtin_shuffle(c, d, fours)), store(p + 48, __builtin_shuffle(c, d, behind));
            return;
        }
    }
    for (int k = 0; k < K; k++)
        for (int64_t i = 0; i < std::min<int64_t>(count, LANES); i++) narrow(inputs[k][i], p + i * K + k);
}

// What a convolution takes of tokens that lie one behind the other: numbers of 16 channels at a time, or of `left`.
template <class Number>
struct Plain {
    using T = Number;
    const T* x;  // [tokens, stride or less]
    int64_t stride;

    vec at(int64_t token, int64_t channel, int64_t left) const { return load_some(x + token * stride + channel, left); }
};

// The same, each channel times a number of its own.
template <class Number>
struct Scaled {
    using T = Number;
    const T* x;
    int64_t stride;
    const float* scales;  // [channels]

    vec at(int64_t token, int64_t channel, int64_t left) const {
        return rounded<T>(load_some(x + token * stride + channel, left) * load_some(scales + channel, left));
    }
};

// Each number times one that lies so many ahead of it.
template <class Number>
struct Gated {
    using T = Number;
    const T* x;
    int64_t stride, ahead;

    vec at(int64_t token, int64_t channel, int64_t left) const {
        const T* p = x + token * stride + channel;
        return rounded<T>(load_some(p - ahead, left) * load_some(p, left));
    }
};

// Some tokens of a row, one behind the other.
template <class Source>
struct Inputs {
    using T = typename Source::T;
    Source source;
    int64_t num_tokens;
    bool is_amid;  // tokens of the same row are ahead of the source's first, the kernel's length or more
    const T* before;  // [channels, kernel] inputs ahead of the row's first token; null: the sequence begins
    T* behind;  // where those behind these tokens go; null: nowhere
};

// Runs the channels [first, first + count); take(token, offset from first, vec) gets what comes out of 16 of them.
template <int K, class In, class Take>
inline void convolve_by(const float* weight, const float* bias, int64_t channels, const In& in, int64_t first,
                        int64_t count, Take&& take) {
    using T = typename In::T;
    for (int64_t at = 0; at < count; at += LANES) {
        const int64_t channel = first + at, left = count - at;
        vec inputs[K] = {}, weights[K];
        if (in.is_amid)
            for (int k = 0; k < K; k++) inputs[k] = in.source.at(k - K, channel, left);
        else if (in.before) read_inputs<K>(in.before + channel * K, left, inputs);
        for (int k = 0; k < K; k++) weights[k] = load_some(weight + k * channels + channel, left);
        const vec offset = bias ? load_some(bias + channel, left) : vec{};
        for (int64_t t = 0; t < in.num_tokens; t++) {
            for (int k = 1; k < K; k++) inputs[k - 1] = inputs[k];
            inputs[K - 1] = in.source.at(t, channel, left);
            vec sum = offset;
            for (int k = 0; k < K; k++) sum += weights[k] * inputs[k];
            take(t, at, rounded<T>(sum));
        }
        if (in.behind) write_inputs<K>(in.behind + channel * K, left, inputs);
    }
}

// `weight` [kernel, channels], `bias` [channels] or null. Kernels of 2 to 4.
template <class In, class Take>
inline void convolve(int64_t kernel, const float* weight, const float* bias, int64_t channels, const In& in,
                     int64_t first, int64_t count, Take&& take) {
    if (kernel == 4) convolve_by<4>(weight, bias, channels, in, first, count, take);
    else if (kernel == 3) convolve_by<3>(weight, bias, channels, in, first, count, take);
    else convolve_by<2>(weight, bias, channels, in, first, count, take);
}

}  // namespace
