// The scores of one row, and which of its tokens may be chosen.
#pragma once

#include "../vectors.h"

namespace {

constexpr ivec IOTA = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
constexpr float INF = INFINITY;

template <class T>
struct Scores {
    const T* x;
    int64_t count;
    const uint32_t* allowed;  // bit t % 32 of word t / 32 is token t; null: all are
    int64_t num_words;        // tokens behind them are forbidden

    // Tokens i to i + 15, for i in whole vectors; minus infinity for a token that is forbidden or none.
    vec at(int64_t i) const {
        vec v;
        if (i + LANES <= count) {
            v = load(x + i);
        } else {
            T rest[LANES];
            for (T& r : rest) narrow(-INF, &r);
            memcpy(rest, x + i, (count - i) * sizeof(T));
            v = load(rest);
        }
        if (!allowed) return v;
        const uint32_t bits = i / 32 < num_words ? allowed[i / 32] >> (i % 32) : 0;
        const uvec bit = (uvec{} + bits) >> (uvec)IOTA & 1u;
        return bit != 0u ? v : splat(-INF);
    }

    // The same for drawing: what is not a number is impossible, and nothing is larger than the largest number.
    vec finite_at(int64_t i) const {
        const vec v = at(i);
        return v == v ? smaller(v, splat(__FLT_MAX__)) : splat(-INF);
    }
};

// First token with the largest score, where a number that is none counts as the largest of all, as torch has it.
template <class T>
int64_t largest(const Scores<T>& scores) {
    vec most = splat(-INF);
    ivec where = IOTA, odd{};
    for (int64_t i = 0; i < scores.count; i += LANES) {
        const vec v = scores.at(i);
        const ivec better = v > most;
        most = better ? v : most;
        where = better ? IOTA + int32_t(i) : where;
        odd |= v != v;
    }
    if (bits_of(odd))
        for (int64_t i = 0; i < scores.count; i += LANES)
            if (const uint32_t bits = bits_of(scores.at(i) != scores.at(i))) return i + __builtin_ctz(bits);
    const float best = max(most);
    int64_t first = scores.count;
    for (int lane = 0; lane < LANES; lane++)
        if (most[lane] == best) first = std::min(first, int64_t(where[lane]));
    return first < scores.count ? first : 0;
}

}  // namespace
