// Kernels of the CPU path. A C face and no torch headers: g++ builds this in seconds, ctypes calls it.
//
// No result depends on the number of threads or on the other rows of a call: contexts are split at fixed positions.

#include "attention.h"
#include "decoder.h"
#include "linear.h"
#include "rope.h"

namespace {

template <class T>
void rms_norm(const T* x, const T* weight, T* out, int64_t rows, int64_t dim, float epsilon, float offset,
              bool rounds, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1 && rows * dim > 1 << 16)
    for (int64_t r = 0; r < rows; r++)
        normalize(x + r * dim, weight, dim, epsilon, offset, rounds, out + r * dim);
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


// 1 if this machine has what `signalbox_linear` and `signalbox_decode` need: the bfloat16 dot product.
int32_t signalbox_has_dot() {
#ifdef __AVX512BF16__
    return 1;
#else
    return 0;
#endif
}

#ifdef __AVX512BF16__

// `x` [rows, inputs] times packed weights, rounded, to `out` [rows, outputs].
void signalbox_linear(const Packed* w, const void* x, void* out, int64_t rows, int32_t threads) {
    const int64_t tiles = num_tiles(*w);
#pragma omp parallel for schedule(dynamic, 4) num_threads(threads) if (threads > 1)
    for (int64_t tile = 0; tile < tiles; tile++)
        multiply_all(*w, tile, tile + 1, (const bf16*)x, rows, [&](int64_t r, int64_t t, vec low, vec high) {
            bf16 columns[TILE];
            store(columns, low);
            store(columns + LANES, high);
            memcpy((bf16*)out + r * w->outputs + t * TILE, columns,
                   std::min(TILE, w->outputs - t * TILE) * sizeof(bf16));
        });
}

// Like signalbox_attend, but for prompts too: bfloat16, dimensions in multiples of 32.
void signalbox_attend_all(const Attention* a) { attend_all(*a); }

void signalbox_decode(const Decoder* d) { decode(*d); }

#endif

}
