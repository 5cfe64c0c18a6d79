// The delta rule on some columns of a head's state, token by token.
#pragma once

#include "past.h"

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

struct Token {
    const float *query, *key, *value;
    const float *asks_query, *asks_key;  // what the state is asked with: both, faded by the decays of their channels
    const float* decays;  // [key_dim] by channel
    float decay, update, match;  // match: query times key; the decay is 1 by channel
    float* out;
};

// N vectors of columns of a head's state, which the numbers of a row's tokens meet one after the other.
template <int N, bool BY_CHANNEL>
struct Columns {
    int64_t key_dim, first;  // of the columns
    vec of_key[N], of_query[N];  // what the state has for the key and for the query
    vec change[N];  // what the key is to give instead, less what it gives

    static vec moved(const Token& t, int64_t k, vec s, vec change) {
        return (BY_CHANNEL ? t.decays[k] : t.decay) * s + t.key[k] * change;
    }

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
        of_key[n] += t.asks_key[k] * s;
        of_query[n] += t.asks_query[k] * s;
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

}  // namespace
