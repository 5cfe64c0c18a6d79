// Kernels of the CPU path. A C face and no torch headers: g++ builds this in seconds, ctypes calls it.
//
// No result depends on the number of threads or on the other rows of a call: contexts are split at fixed positions.

#include "attention/attention.h"
#include "attention/rope.h"
#include "decoder.h"
#include "exchange.h"
#include "experts.h"
#include "products/heads.h"
#include "products/linear.h"
#include "products/packing.h"
#include "products/plain.h"
#include "products/quantised.h"
#include "products/rounding.h"
#include "row_copies.h"
#include "sampling/draw.h"
#include "sampling/philox.h"
#include "states/delta_net.h"
#include "states/selective_scan.h"
#include "states/short_convolution.h"
#include "states/state_space.h"

#include <cstddef>

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

template <class T>
void argmax(const T* x, int64_t* out, int64_t rows, int64_t columns, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1 && rows > 1)
    for (int64_t r = 0; r < rows; r++) out[r] = largest(Scores<T>{x + r * columns, columns, nullptr, 0});
}

// Tokens to be chosen; those of temperature 0 are the best.
struct Choice {
    const void* scores;  // [any, columns]
    const int64_t* rows;  // [count] of the scores
    const uint32_t* masks;  // [any, mask_words]
    const int32_t* mask_index;  // [count]; -1: all tokens are allowed
    const float* temperatures;  // these are [count], too
    const int64_t* top_ks;
    const double* top_ps;
    const float* min_ps;
    const double* numbers;
    int64_t* tokens;
    int64_t count, columns, mask_words;
    int32_t is_bf16, num_threads;
};

template <class T>
void choose(const Choice& c) {
#pragma omp parallel for schedule(dynamic) num_threads(c.num_threads) if (c.num_threads > 1 && c.count > 1)
    for (int64_t i = 0; i < c.count; i++) {
        const int32_t mask = c.mask_index[i];
        const Scores<T> scores{(const T*)c.scores + c.rows[i] * c.columns, c.columns,
                               mask < 0 ? nullptr : c.masks + mask * c.mask_words, c.mask_words};
        const Limits limits{c.temperatures[i], c.top_ks[i], c.top_ps[i], c.min_ps[i]};
        c.tokens[i] = limits.temperature == 0 ? largest(scores) : draw(scores, limits, c.numbers[i]);
    }
}

// What structs.py compares its mirrors with.
struct Layout {
    const char* name;  // null: there are no more
    int64_t size, last;  // bytes, and those before the last field
};

constexpr Layout LAYOUTS[] = {
    {"Attention", sizeof(Attention), offsetof(Attention, num_threads)},
    {"Rope", sizeof(Rope), offsetof(Rope, num_threads)},
    {"Packed", sizeof(Packed), offsetof(Packed, is_e2m1)},
    {"Layer", sizeof(Layer), offsetof(Layer, window)},
    {"Decoder", sizeof(Decoder), offsetof(Decoder, num_threads)},
    {"Choice", sizeof(Choice), offsetof(Choice, num_threads)},
    {"Experts", sizeof(Experts), offsetof(Experts, num_threads)},
    {"Groups", sizeof(Groups), offsetof(Groups, num_threads)},
    {"Packing", sizeof(Packing), offsetof(Packing, num_threads)},
    {"DeltaNet", sizeof(DeltaNet), offsetof(DeltaNet, num_threads)},
    {"Convolution", sizeof(Convolution), offsetof(Convolution, num_threads)},
    {"SelectiveScan", sizeof(SelectiveScan), offsetof(SelectiveScan, num_threads)},
    {"StateSpace", sizeof(StateSpace), offsetof(StateSpace, num_threads)},
    {"Exchange", sizeof(Exchange), offsetof(Exchange, has_ended)},
    {"StripPair", sizeof(StripPair), offsetof(StripPair, row_bytes)},
    {nullptr, 0, 0},
};

}  // namespace

extern "C" {

const Layout* signalbox_layouts() { return LAYOUTS; }

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

void signalbox_choose(const Choice* c) { c->is_bf16 ? choose<bf16>(*c) : choose<float>(*c); }

// One number in [0, 1) per key; all arrays are [count].
void signalbox_uniforms(const uint64_t* seeds, const uint32_t* choice_indices, const uint32_t* output_positions,
                        uint32_t purpose, double* out, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        out[i] = uniform(seeds[i], {output_positions[i], choice_indices[i], purpose, 0});
}

// `x` [rows, inputs] times weights kept as whole numbers, rounded, to `out` [rows, outputs].
void signalbox_linear_quantised(const Packed* w, const void* x, void* out, int64_t rows, int32_t is_bf16,
                                int32_t threads) {
    if (is_bf16) linear_quantised(*w, (const bf16*)x, (bf16*)out, rows, threads);
    else linear_quantised(*w, (const float*)x, (float*)out, rows, threads);
}

// Like that, with weights in floats or, without the dot product, in bfloat16.
void signalbox_linear_plain(const Packed* w, const void* x, void* out, int64_t rows, int32_t is_bf16,
                            int32_t threads) {
    if (is_bf16) linear_plain(*w, (const bf16*)x, (bf16*)out, rows, threads);
    else linear_plain(*w, (const float*)x, (float*)out, rows, threads);
}

void signalbox_mix_experts(const Experts* e) { e->is_bf16 ? mix_experts<bf16>(*e) : mix_experts<float>(*e); }

// Whether products with bfloat16 are to be computed by matrix units from now on. 1 if so; the system may not let us.
// Only where the CPU has them may they be wanted.
int32_t signalbox_use_matrix_units([[maybe_unused]] int32_t wanted) {
#ifdef SIGNALBOX_MATRIX_UNITS
    uses_matrix_units = wanted && ask_for_matrix_units();
    return uses_matrix_units;
#else
    return 0;
#endif
}

// Numbers to whole numbers of 4 bits.
void signalbox_round_groups(const Groups* g) { g->is_bf16 ? round_groups<bf16>(*g) : round_groups<float>(*g); }

// Numbers to whole numbers of 8 bits.
void signalbox_round_to_bytes(const Groups* g) { g->is_bf16 ? round_to_bytes<bf16>(*g) : round_to_bytes<float>(*g); }

// Rows of weights to the tiles that products read.
void signalbox_pack_rows(const Packing* r) { pack_rows(*r); }

// Gated delta nets of all rows, between their projections.
void signalbox_run_delta_net(const DeltaNet* d) { d->is_bf16 ? run_delta_net<bf16>(*d) : run_delta_net<float>(*d); }

// Convolutions of all rows.
void signalbox_run_convolution(const Convolution* d) {
    d->is_bf16 ? run_convolution<bf16>(*d) : run_convolution<float>(*d);
}

// Scans of Mamba layers of all rows, behind their convolutions.
void signalbox_run_selective_scan(const SelectiveScan* d) {
    d->is_bf16 ? run_selective_scan<bf16>(*d) : run_selective_scan<float>(*d);
}

// Mamba 2 layers of all rows, between their projections.
void signalbox_run_state_space(const StateSpace* d) {
    d->is_bf16 ? run_state_space<bf16>(*d) : run_state_space<float>(*d);
}

// What ranks of this host have of each other.
void signalbox_exchange(Exchange* e) { exchange(*e); }

// Blocks `sources` [count] of all strips to blocks `targets` [count].
void signalbox_copy_rows(const StripPair* strips, int64_t num_strips, const int64_t* targets, const int64_t* sources,
                         int64_t count) {
    copy_rows(strips, num_strips, targets, sources, count);
}

// 1 if this machine has what `signalbox_linear` and `signalbox_decode` need: the bfloat16 dot product.
int32_t signalbox_has_dot() {
#ifdef SIGNALBOX_DOT
    return 1;
#else
    return 0;
#endif
}

#ifdef SIGNALBOX_DOT

// `x` [rows, inputs] times packed weights, rounded, to `out` [rows, outputs].
void signalbox_linear(const Packed* w, const void* x, void* out, int64_t rows, int32_t threads) {
    const Parts parts = parts_of(*w, rows, threads);
#pragma omp parallel for schedule(dynamic, parts.at_a_time(threads)) num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < parts.count(); i++)
        parts.with(i, [&](int64_t tile, int64_t end, int64_t first, int64_t count) {
            multiply_packed(*w, tile, end, (const bf16*)x + first * w->inputs, count,
                            [&](int64_t r, int64_t t, vec low, vec high) {
                                store_tile((bf16*)out + (first + r) * w->outputs, w->outputs, t, low, high);
                            });
        });
}

// Part `head` of each row of `x` [rows, heads, inputs] times that head's matrix, rounded, to `out`.
void signalbox_linear_heads(const Packed* w, const void* x, void* out, int64_t rows, int64_t heads, int64_t x_row,
                            int64_t x_head, int64_t out_row, int64_t out_head, int32_t threads) {
    linear_heads(*w, (const bf16*)x, (bf16*)out, rows, heads, x_row, x_head, out_row, out_head, threads);
}

// Like signalbox_attend, but for prompts too: bfloat16, dimensions in multiples of 32.
void signalbox_attend_all(const Attention* a) { attend_all(*a); }

void signalbox_decode(const Decoder* d) { decode(*d); }

#endif

}
