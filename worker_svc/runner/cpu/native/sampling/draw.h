// Draws a token from a row of scores by the inverse of its distribution function.
//
// A row without limits is summed by token. One with limits is summed from the best token down, equals by token, but
// never sorted: where a sum of the best reaches a goal is found by halving the range of scores, with a look at the
// whole row each time, which vectors make cheap. All sums are in double precision and in a fixed order.
#pragma once

#include <limits>

#include "scores.h"

namespace {

typedef float half __attribute__((vector_size(32)));
typedef double dvec __attribute__((vector_size(64)));

inline dvec in_doubles(half v) {
#ifdef __AVX512F__
    return (dvec)_mm512_cvtps_pd((__m256)v);  // which GCC makes two of
#else
    return __builtin_convertvector(v, dvec);
#endif
}

struct Limits {
    float temperature;
    int64_t top_k;  // between 1 and the number of tokens
    double top_p;
    float min_p;
};

// Sums of floats in doubles.
struct Sum {
    dvec low{}, high{};

    void add(vec v) {
        half halves[2];
        memcpy(halves, &v, sizeof v);
        low += in_doubles(halves[0]);
        high += in_doubles(halves[1]);
    }
    double total() const {
        double all = 0;
        for (int lane = 0; lane < LANES / 2; lane++) all += low[lane] + high[lane];
        return all;
    }
};

// Of scores whose best is `best`: 1 for that one. What underflows, as what is impossible does, weighs nothing at all.
inline vec weights(vec scores, float best, float temperature) {
    const vec x = (scores - best) / temperature;
    // Minus infinity over a temperature that nobody accepts would be the largest of all.
    return (x > -87.0f) & (scores > -INF) ? exponential(x) : vec{};
}

template <class T>
float best_of(const Scores<T>& scores) {
    vec most = splat(-INF);
    for (int64_t i = 0; i < scores.count; i += LANES) most = larger(scores.finite_at(i), most);
    return max(most);
}

template <class T>
int64_t draw_by_token(const Scores<T>& scores, float best, float temperature, double number) {
    constexpr int64_t PART = 1024;
    static thread_local std::vector<double> parts;
    parts.clear();
    double total = 0;
    for (int64_t start = 0; start < scores.count; start += PART) {
        Sum sum;
        for (int64_t i = start; i < std::min(start + PART, scores.count); i += LANES)
            sum.add(weights(scores.finite_at(i), best, temperature));
        parts.push_back(sum.total());
        total += parts.back();
    }
    const double goal = number * total;
    double before = 0;
    size_t part = 0;
    while (part + 1 < parts.size() && before + parts[part] <= goal) before += parts[part++];
    int64_t last = 0;  // where rounding leaves the goal out of reach
    for (int64_t i = part * PART; i < scores.count; i += LANES) {
        const vec w = weights(scores.finite_at(i), best, temperature);
        for (int lane = 0; lane < LANES; lane++) {
            if (w[lane] == 0) continue;
            before += w[lane];
            last = i + lane;
            if (before > goal) return last;
        }
    }
    return last;
}

// Whole numbers in the order of floats: as many as there are floats from 0 to x, both zeros being 0.
inline int32_t key_of(float x) {
    const float size = std::fabs(x);
    int32_t bits;
    memcpy(&bits, &size, 4);
    return x < 0 ? -bits : bits;
}
inline float of_key(int64_t key) {
    const int32_t bits = int32_t(std::abs(key));
    float x;
    memcpy(&x, &bits, 4);
    return key < 0 ? -x : x;
}

// The best tokens of a row: all that score above `score`, and of those that have it the first `equals`.
struct Best {
    float score;
    int64_t equals = std::numeric_limits<int64_t>::max();
};
inline Best fewer(Best a, Best b) {
    if (a.score != b.score) return a.score > b.score ? a : b;
    return a.equals < b.equals ? a : b;
}

// What some of a row's possible tokens come to.
struct Share {
    int64_t count = 0;
    double weight = 0;
};

// A row's scores and weights, side by side, filled up with what is impossible. Some score is above minus infinity.
class Row {
public:
    template <class T>
    Row(const Scores<T>& scores, float best, float temperature)
        : best_(best), temperature_(temperature), size_((scores.count + LANES - 1) / LANES * LANES) {
        scores_ = space(0, size_), weights_ = space(1, size_);
        vec least = splat(INF);
        for (int64_t i = 0; i < size_; i += LANES) {
            const vec v = scores.finite_at(i);
            store(scores_ + i, v);
            store(weights_ + i, weights(v, best, temperature));
            least = smaller(v > -INF ? v : splat(INF), least);
        }
        least_ = -max(-least);
        all_ = share_of([](vec v) { return v > -INF; });
    }

    Best all() const { return {least_}; }
    Share of(Best best) const {
        const Share above = share_of([=](vec v) { return v > best.score; });
        const Share equal = share_of([=](vec v) { return v == best.score; });
        const int64_t equals = std::min(best.equals, equal.count);
        return {above.count + equals, above.weight + equals * weight_of(best.score)};
    }

    // The fewest best tokens that count `goal`, or that weigh it; all that can be chosen, if those do not.
    Best that_count(int64_t goal) const {
        return first_to([=](Share share) { return share.count >= goal; },
                        [=](Share before, double) { return goal - before.count; });
    }
    Best that_weigh(double goal) const {
        goal = std::min(goal, all_.weight);
        return first_to([=](Share share) { return share.weight >= goal; },
                        [=, this](Share before, double weight) {
                            const double count = weight > 0 ? (goal - before.weight) / weight : 1.0;
                            return int64_t(std::ceil(std::min(count, double(size_))));
                        });
    }
    // All of at least this weight.
    Best of_weight(float least) const {
        vec lowest = splat(INF);
        for (int64_t i = 0; i < size_; i += LANES)
            lowest = smaller(load(weights_ + i) >= least ? load(scores_ + i) : splat(INF), lowest);
        return {std::min(-max(-lowest), best_)};
    }

    // The last of the best tokens.
    int64_t last_of(Best best) const {
        int64_t last = 0, left = best.equals;
        for (int64_t i = 0; i < size_; i += LANES) {
            for (uint32_t bits = bits_of(load(scores_ + i) == best.score); bits; bits &= bits - 1) {
                last = i + __builtin_ctz(bits);
                if (--left == 0) return last;
            }
        }
        return last;
    }

private:
    static constexpr int64_t FEW = 256;  // sorted rather than halved
    static constexpr int LINEAR = 3;     // halvings of the scores' range for one of their bits, which ends in any case

    float best_, temperature_, least_;
    int64_t size_;
    float *scores_, *weights_;
    Share all_;

    static float* space(int which, int64_t size) {
        static thread_local std::vector<float> spaces[2];
        if (int64_t(spaces[which].size()) < size) spaces[which].resize(size);
        return spaces[which].data();
    }

    float weight_of(float score) const { return weights(splat(score), best_, temperature_)[0]; }

    template <class Takes>
    Share share_of(Takes takes) const {
        ivec count{};
        Sum sum;
        for (int64_t i = 0; i < size_; i += LANES) {
            const ivec taken = takes(load(scores_ + i));
            count -= taken;
            sum.add(taken ? load(weights_ + i) : vec{});
        }
        Share share{0, sum.total()};
        for (int lane = 0; lane < LANES; lane++) share.count += count[lane];
        return share;
    }

    // `reaches` says whether the best tokens are enough; `needed`, how many of equal weight are needed behind others.
    template <class Reaches, class Needed>
    Best first_to(Reaches reaches, Needed needed) const {
        int64_t low = key_of(least_) - 1, high = key_of(best_);  // enough are above low, not enough are above high
        Share above_low = all_, above_high;
        if (!reaches(above_low)) return all();
        for (int turn = 1; above_low.count - above_high.count > FEW && high - low > 1; turn++) {
            const int64_t middle = (low + high) >> 1;
            const float mean = of_key(low) / 2 + of_key(high) / 2;
            int64_t pivot = turn % (LINEAR + 1) ? key_of(mean) : middle;
            if (pivot <= low || pivot >= high) pivot = middle;
            const float border = of_key(pivot);
            const Share share = share_of([=](vec v) { return v > border; });
            if (reaches(share)) low = pivot, above_low = share;
            else high = pivot, above_high = share;
        }
        return among(low, high, above_high, reaches, needed);
    }

    // The same among the few scores above `low` and up to `high`, or among those that are all `high`.
    template <class Reaches, class Needed>
    Best among(int64_t low, int64_t high, Share before, Reaches reaches, Needed needed) const {
        if (high - low == 1) return one_of(of_key(high), before, needed);
        static thread_local std::vector<float> few;
        few.clear();
        const float above = of_key(low), most = of_key(high);
        for (int64_t i = 0; i < size_; i += LANES) {
            const vec v = load(scores_ + i);
            for (uint32_t bits = bits_of((v > above) & (v <= most)); bits; bits &= bits - 1)
                few.push_back(scores_[i + __builtin_ctz(bits)]);
        }
        std::sort(few.begin(), few.end(), std::greater<float>());
        for (size_t i = 0; i < few.size();) {
            const size_t start = i;
            while (i < few.size() && few[i] == few[start]) i++;
            const Share share{before.count + int64_t(i - start),
                              before.weight + double(i - start) * weight_of(few[start])};
            if (reaches(share) || i == few.size()) {
                const Best best = one_of(few[start], before, needed);
                return {best.score, std::min(best.equals, int64_t(i - start))};
            }
            before = share;
        }
        return all();
    }

    template <class Needed>
    Best one_of(float score, Share before, Needed needed) const {
        return {score, std::max<int64_t>(1, needed(before, weight_of(score)))};
    }
};

template <class T>
int64_t draw_from_best(const Scores<T>& scores, float best, const Limits& limits, double number) {
    const Row row(scores, best, limits.temperature);
    Best kept = row.all();
    if (limits.top_k < scores.count) kept = row.that_count(limits.top_k);
    if (limits.top_p < 1) kept = fewer(kept, row.that_weigh(limits.top_p * row.of(kept).weight));
    if (limits.min_p > 0) kept = fewer(kept, row.of_weight(limits.min_p));
    const double goal = std::nextafter(number * row.of(kept).weight, 2.0 * scores.count);
    return row.last_of(fewer(row.that_weigh(goal), kept));
}

// The token at `number`, in [0, 1), of the distribution; a row in which nothing is possible gives token 0.
template <class T>
int64_t draw(const Scores<T>& scores, const Limits& limits, double number) {
    const float best = best_of(scores);
    if (best == -INF) return 0;
    const bool limited = limits.top_k < scores.count || limits.top_p < 1 || limits.min_p > 0;
    return limited ? draw_from_best(scores, best, limits, number)
                   : draw_by_token(scores, best, limits.temperature, number);
}

}  // namespace
