// A layer's mixture of experts in one call: the rows of each expert are brought together, multiplied, gated, multiplied
// back, and added up row by row.
//
// A row's result is what its own experts give, added in the order in which the router names them, so it depends
// neither on the other rows nor on the threads.
#pragma once

#include <algorithm>
#include <vector>

#include "products/matrix_units.h"
#include "products/plain.h"
#include "products/quantised.h"

// Fields as in structs.py.
struct Experts {
    const Packed *gate_up, *down;  // [num_experts]; gate_up: 16 gates, then their 16 ups, in each tile
    const void* x;  // [num_rows, inputs]
    const int64_t* chosen;  // [num_rows, num_chosen] experts
    const float* weights;  // [num_rows, num_chosen] of what they give
    void* out;  // [num_rows, inputs]
    int64_t num_rows, num_chosen, num_experts;
    float alpha, limit;  // of the clamped activation
    int32_t activation;  // as for `gate`; 2: clamped
    int32_t is_bf16, num_threads;
};

namespace {

inline vec activation(vec g, int32_t kind);

constexpr int32_t CLAMPED = 2;

inline vec gated(const Experts& e, vec gates, vec ups) {
    if (e.activation != CLAMPED) return activation(gates, e.activation) * ups;
    // What is no number stays such: of two that do not compare the second one is taken.
    const vec gate = smaller(splat(e.limit), gates);
    const vec up = larger(splat(-e.limit), smaller(splat(e.limit), ups));
    return (up + 1.0f) * (gate / (1.0f + exponential(-e.alpha * gate)));
}

// Rows by the experts that they have chosen: those of one lie together.
struct Routes {
    struct Share {
        int64_t expert, first, count;  // `count` places from `first` on
    };
    std::vector<Share> shares;  // of the experts that are chosen at all
    std::vector<int64_t> sources;  // [places] the row that each place is of
    std::vector<int64_t> places;  // [rows, chosen]

    explicit Routes(const Experts& e) : sources(e.num_rows * e.num_chosen), places(sources.size()) {
        std::vector<int64_t> next(e.num_experts + 1);
        for (size_t i = 0; i < places.size(); i++) next[e.chosen[i] + 1]++;
        for (int64_t expert = 0; expert < e.num_experts; expert++) {
            const int64_t count = next[expert + 1];
            next[expert + 1] += next[expert];
            if (count) shares.push_back({expert, next[expert], count});
        }
        for (size_t i = 0; i < places.size(); i++) {
            places[i] = next[e.chosen[i]]++;
            sources[places[i]] = i / e.num_chosen;
        }
    }
};

// Rows that a product takes, in whatever form its weights need.
template <class T>
struct ExpertRows {
    std::vector<T> numbers;
    RoundedRows rounded;

    void resize(int64_t rows, const Packed& w) {
        if ((int64_t)numbers.size() < rows * w.inputs) numbers.resize(rows * w.inputs);
        if (is_quantised(w)) rounded.resize(rows, w.inputs);
    }
    // To be called once the numbers of a row are there.
    void round(int64_t r, const Packed& w) {
        if (is_quantised(w)) rounded.round(numbers.data(), r, w.inputs);
    }
    template <class Take>
    void multiply(const Packed& w, int64_t tile, int64_t first, int64_t rows, Take&& take) const {
        const T* x = numbers.data() + first * w.inputs;
        if (is_quantised(w)) return multiply_all(w, tile, rounded.view(w.inputs).from(first), rows, take);
#ifdef SIGNALBOX_DOT
        if constexpr (std::is_same_v<T, bf16>)
            if (w.bits == 16) return multiply_packed(w, tile, tile + 1, x, rows, take);
#endif
        multiply_all_plain(w, tile, x, rows, take);
    }
};

template <class T>
struct ExpertScratch {
    ExpertRows<T> rows, gated;
    std::vector<float> parts;  // [places, outputs, in whole tiles]
};

template <class T>
inline void mix_experts(const Experts& e) {
    static thread_local ExpertScratch<T> own;
    ExpertScratch<T>& s = own;
    const Routes routes(e);
    const Packed &up = e.gate_up[0], &down = e.down[0];
    const int64_t places = routes.sources.size(), shares = routes.shares.size(), width = num_tiles(down) * TILE;
    const int64_t up_tiles = num_tiles(up), down_tiles = num_tiles(down);
    s.rows.resize(places, up);
    s.gated.resize(places, down);
    if ((int64_t)s.parts.size() < places * width) s.parts.resize(places * width);
#pragma omp parallel num_threads(e.num_threads) if (e.num_threads > 1)
    {
#pragma omp for
        for (int64_t p = 0; p < places; p++) {
            memcpy(&s.rows.numbers[p * up.inputs], (const T*)e.x + routes.sources[p] * up.inputs,
                   up.inputs * sizeof(T));
            s.rows.round(p, up);
        }
#pragma omp for schedule(dynamic, 2)
        for (int64_t i = 0; i < shares * up_tiles; i++) {
            const Routes::Share& share = routes.shares[i / up_tiles];
            s.rows.multiply(e.gate_up[share.expert], i % up_tiles, share.first, share.count,
                            [&](int64_t r, int64_t t, vec gates, vec ups) {
                                store(&s.gated.numbers[(share.first + r) * down.inputs + t * LANES],
                                      gated(e, rounded<T>(gates), rounded<T>(ups)));
                            });
        }
        if (is_quantised(down)) {
#pragma omp for
            for (int64_t p = 0; p < places; p++) s.gated.round(p, down);
        }
#pragma omp for schedule(dynamic, 2)
        for (int64_t i = 0; i < shares * down_tiles; i++) {
            const Routes::Share& share = routes.shares[i / down_tiles];
            s.gated.multiply(e.down[share.expert], i % down_tiles, share.first, share.count,
                             [&](int64_t r, int64_t t, vec low, vec high) {
                                 float* to = &s.parts[(share.first + r) * width + t * TILE];
                                 store(to, low);
                                 store(to + LANES, high);
                             });
        }
#pragma omp for
        for (int64_t r = 0; r < e.num_rows; r++) {
            const int64_t* own_places = &routes.places[r * e.num_chosen];
            T* out = (T*)e.out + r * down.outputs;
            for (int64_t d = 0; d < width; d += LANES) {
                vec total = {};
                for (int64_t k = 0; k < e.num_chosen; k++)
                    total += load(&s.parts[own_places[k] * width + d]) * e.weights[r * e.num_chosen + k];
                T columns[LANES];
                store(columns, total);
                const int64_t there = std::clamp<int64_t>(down.outputs - d, 0, LANES);
                memcpy(out + d, columns, there * sizeof(T));
            }
        }
    }
}

}  // namespace
