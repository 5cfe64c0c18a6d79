// Numbers as whole numbers: of 8 bits in groups with a scale each, by the largest; of 4 bits in groups with a scale and
// an offset each, those of least squared error.
#pragma once

#include "../vectors.h"

namespace {

struct Groups {
    const void* numbers;  // [count, 32]
    int8_t* codes;  // [count, 32], -8 to 7, or -127 to 127
    float *scales, *offsets;  // [count]; of 8 bits there are no offsets
    int64_t count;
    int32_t is_bf16, num_threads;
};

constexpr int64_t GROUP = 32;
constexpr float LEAST_CODE = -8, MOST_CODE = 7;
// Of the scale that spans all numbers: below 1 the largest ones are cut off, and all others come nearer.
constexpr float SHARES[] = {1.0f, 0.95f, 0.9f, 0.85f, 0.8f, 0.75f, 0.7f};
constexpr int REFINEMENTS = 2;  // of each share, by least squares with the codes that it leads to

inline vec choose(ivec mask, vec a, vec b) { return mask ? a : b; }
inline vec absolute(vec v) { return (vec)((ivec)v & 0x7fffffff); }

// Rounded to 11 bits as float16 has them, ties to even.
inline vec to_eleven_bits(vec v) {
    const uvec bits = (uvec)v;
    return (vec)((bits + 0xfff + ((bits >> 13) & 1)) & 0xffffe000);
}

struct Fit {
    vec scale, offset;

    // As they are kept: numbers of float16 where the scale is in its range.
    void settle() {
        const vec size = absolute(scale);
        const ivec fits = (size >= 0x1p-14f) & (size <= 32768.0f) & (absolute(offset) <= 32768.0f);
        scale = choose(fits, to_eleven_bits(scale), scale);
        const vec small = (offset + 0.75f) - 0.75f;  // in steps of the numbers below the smallest normal one
        const vec half = choose(absolute(offset) < 0x1p-14f, small, to_eleven_bits(offset));
        offset = choose(fits, half, offset);
    }
    vec inverse() const { return choose(scale == 0.0f, vec{}, 1.0f / scale); }
    static vec code(vec number, vec offset, vec inverse) {
        constexpr float MAGIC = 12582912.0f;
        const vec place = smaller(larger((number - offset) * inverse, splat(LEAST_CODE)), splat(MOST_CODE));
        return (place + MAGIC) - MAGIC;
    }
};

// What is found for 16 groups, each of them a lane, so that nothing is added up across lanes; x[i]: the i-th of each.
inline Fit best_fit(const vec* x) {
    vec low = x[0], high = x[0], total{};
    for (int i = 0; i < GROUP; i++) low = smaller(low, x[i]), high = larger(high, x[i]), total += x[i];
    Fit best{};
    vec least = splat(INFINITY);
    for (float share : SHARES) {
        Fit fit{(high - low) * (share / (MOST_CODE - LEAST_CODE)), {}};
        fit.offset = 0.5f * (low + high) - 0.5f * (LEAST_CODE + MOST_CODE) * fit.scale;
        for (int refined = 0;; refined++) {
            fit.settle();
            const vec inverse = fit.inverse();
            vec error{}, codes{}, squares{}, products{};
            for (int i = 0; i < GROUP; i++) {
                const vec c = Fit::code(x[i], fit.offset, inverse);
                const vec difference = c * fit.scale + fit.offset - x[i];
                error += difference * difference;
                codes += c, squares += c * c, products += c * x[i];
            }
            const ivec better = error < least;
            least = choose(better, error, least);
            best.scale = choose(better, fit.scale, best.scale);
            best.offset = choose(better, fit.offset, best.offset);
            if (refined == REFINEMENTS) break;
            const vec spread = float(GROUP) * squares - codes * codes;
            const vec slope = float(GROUP) * products - codes * total;
            const ivec known = spread > 0.0f;
            fit.scale = choose(known, slope / choose(known, spread, splat(1)), fit.scale);
            fit.offset = choose(known, (total - codes * fit.scale) * (1.0f / GROUP), fit.offset);
        }
    }
    return best;
}

template <class T>
inline void round_lanes(const Groups& g, int64_t first) {
    const int64_t lanes = std::min<int64_t>(LANES, g.count - first);
    vec x[GROUP] = {};
    vec strange{};  // not 0 where a number is not finite
    for (int64_t lane = 0; lane < lanes; lane++)
        for (int i = 0; i < GROUP; i++) x[i][lane] = widen(((const T*)g.numbers)[(first + lane) * GROUP + i]);
    for (int i = 0; i < GROUP; i++) strange += x[i] * 0.0f;
    const ivec is_finite = strange == 0.0f;
    for (int i = 0; i < GROUP; i++) x[i] = choose(is_finite, x[i], vec{});
    const Fit fit = best_fit(x);
    const vec inverse = fit.inverse(), scale = fit.scale + strange;
    for (int64_t lane = 0; lane < lanes; lane++) {
        g.scales[first + lane] = scale[lane];
        g.offsets[first + lane] = fit.offset[lane];
    }
    for (int i = 0; i < GROUP; i++) {
        const vec codes = Fit::code(x[i], fit.offset, inverse);
        for (int64_t lane = 0; lane < lanes; lane++) g.codes[(first + lane) * GROUP + i] = (int8_t)codes[lane];
    }
}

// As round_to_eight_bits in rounding.py, number by number; a scale that is none is NaN here.
template <class T>
inline void round_group(const Groups& g, int64_t group) {
    constexpr float MOST = 127;
    const T* from = (const T*)g.numbers + group * GROUP;
    const vec x[] = {load(from), load(from + LANES)};
    const float strange = sum(x[0] * 0.0f + x[1] * 0.0f);  // not 0 where a number is not finite
    float scale = NAN;
    typedef int8_t bytes __attribute__((vector_size(LANES)));
    bytes codes[2] = {};
    if (strange == 0.0f) {
        scale = max(larger(absolute(x[0]), absolute(x[1]))) / MOST;
        if (scale >= 0x1p-14f && scale <= 65504.0f) scale = to_eleven_bits(splat(scale))[0];
        const vec divisor = splat(scale == 0.0f ? 1.0f : scale);
        for (int i = 0; i < 2; i++) {
            constexpr float MAGIC = 12582912.0f;
            const vec place = smaller(larger(x[i] / divisor, splat(-MOST)), splat(MOST));
            codes[i] = __builtin_convertvector((place + MAGIC) - MAGIC, bytes);
        }
    }
    g.scales[group] = scale;
    memcpy(g.codes + group * GROUP, codes, sizeof codes);
}

template <class T>
void round_to_bytes(const Groups& g) {
#pragma omp parallel for num_threads(g.num_threads) if (g.num_threads > 1)
    for (int64_t group = 0; group < g.count; group++)
        round_group<T>(g, group);
}

template <class T>
void round_groups(const Groups& g) {
#pragma omp parallel for num_threads(g.num_threads) if (g.num_threads > 1)
    for (int64_t first = 0; first < g.count; first += LANES)
        round_lanes<T>(g, first);
}

}  // namespace
