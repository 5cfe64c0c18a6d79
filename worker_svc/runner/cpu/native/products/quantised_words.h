// Products of several rows with weights kept as whole numbers, by vectors: codes become 16 bits once for all rows.
//
// A product of 16 bits adds up two inputs in a lane where one of 8 bits adds up four, but of those a row of 16 bits
// needs two. So there are as many of them, and for each row nothing is left to be unpacked, shifted or taken off. What
// is made of the sums is what multiply_tiles in quantised.h makes of them, bit for bit.
#pragma once

#include "kept_codes.h"
#include "rounded_rows.h"

#ifdef SIGNALBOX_WORDS

namespace {

typedef uint16_t words __attribute__((vector_size(64)));

// Weights of one tile, of a few times 16 or 32 inputs, as signed words: two inputs of a column lie together, in the
// order in which rows have them.
struct WordLots {
    static constexpr int64_t MOST = 4;
    alignas(64) uint16_t codes[MOST][PIECE * TILE];
    vec scales[MOST][2], offsets[MOST][2];
    int64_t count;
};

inline words load_four_or_eight(const uint8_t* p) {
    words w;
    memcpy(&w, p, sizeof w);
    return w;
}
inline void store(uint16_t* p, words w) { memcpy(p, &w, sizeof w); }

inline void bytes_to_words(const uint8_t* from, int64_t bytes, uint16_t* to) {
    for (int64_t i = 0; i < bytes; i += 64) {
        const words four = load_four_or_eight(from + i);
        uint16_t* at = to + i / 128 * 128 + i % 128 / 2;
        store(at, (four & 0xff) - 128);
        store(at + 64, (four >> 8) - 128);
    }
}

// What the lowest four bits of each word stand for.
template <int BITS>
inline words from_nibbles(words w) {
#ifdef __AVX512BW__
    typedef int16_t shorts __attribute__((vector_size(32)));
    constexpr shorts WHOLE = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
    constexpr shorts DOUBLED = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    // There twice, as five bits are looked at, of which the upper one is another number's.
    const __m512i table = _mm512_broadcast_i64x4((__m256i)(BITS == E2M1 ? DOUBLED : WHOLE));
    return (words)_mm512_permutexvar_epi16((__m512i)w, table);
#else
    if constexpr (BITS == E2M1) return ((words)e2m1_codes((ivec)(w & 15)) & 0xff) - 12;
    return (w & 15) - 8;
#endif
}

// A byte has an input in its lower half, and the one four inputs later in its upper half.
template <int BITS>
inline void nibbles_to_words(const uint8_t* from, int64_t bytes, uint16_t* to) {
    for (int64_t i = 0; i < bytes; i += 64) {
        const words eight = load_four_or_eight(from + i);
        uint16_t* at = to + i / 128 * 256 + i % 128 / 2;
        store(at, from_nibbles<BITS>(eight));
        store(at + 64, from_nibbles<BITS>(eight >> 8));
        store(at + 128, from_nibbles<BITS>(eight >> 4));
        store(at + 192, from_nibbles<BITS>(eight >> 12));
    }
}

// Reads a tile from its beginning to its end.
class WordReader {
  public:
    WordReader(const Packed& w, int64_t tile) : w_(w), place_(w, tile), inputs_(w.group % PIECE ? HALF : PIECE) {}

    int64_t inputs() const { return inputs_; }  // of a lot

    // The lots from input `k` on, which comes next, as many as there are and fit.
    void read(int64_t k, WordLots& lots) {
        const int64_t bytes = TILE * inputs_ * w_.bits / 8;
        lots.count = std::min(WordLots::MOST, (w_.inputs - k) / inputs_);
        for (int64_t i = 0; i < lots.count; i++) {
            const uint8_t* codes = place_.next(inputs_, bytes);
            const GroupHead& head = place_.head();
            for (int c = 0; c < 2; c++) lots.scales[i][c] = head.scales[c], lots.offsets[i][c] = head.offsets[c];
            if (w_.bits == 8) bytes_to_words(codes, bytes, lots.codes[i]);
            else if (w_.is_e2m1) nibbles_to_words<E2M1>(codes, bytes, lots.codes[i]);
            else nibbles_to_words<4>(codes, bytes, lots.codes[i]);
        }
        // They come from the memory while rows pass these.
        prefetch(place_.end(), WordLots::MOST * (bytes + head_bytes(w_)));
    }

  private:
    const Packed& w_;
    TilePlace place_;
    const int64_t inputs_;
};

// A register: what is larger than one would go through the memory.
#ifdef __AVX512F__
constexpr int WIDTH = 16, ROWS_BY_WORDS = 8;
#else
constexpr int WIDTH = 8, ROWS_BY_WORDS = 2;
#endif
typedef float numbers __attribute__((vector_size(4 * WIDTH)));
typedef int32_t wholes __attribute__((vector_size(4 * WIDTH)));
constexpr int REGISTERS = TILE / WIDTH;  // for a row of a tile

// sum[i] += w[2 i] * pair[2 i] + w[2 i + 1] * pair[2 i + 1], of words with a sign.
inline wholes dot2(wholes sum, wholes w, wholes pair) {
#ifdef __AVX512VNNI__
    return (wholes)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)w, (__m512i)pair);
#elif defined(__AVX512BW__)
    return sum + (wholes)_mm512_madd_epi16((__m512i)w, (__m512i)pair);
#else
    return sum + (wholes)_mm256_madd_epi16((__m256i)w, (__m256i)pair);
#endif
}

inline wholes splat2(const int16_t* p) {  // two numbers, in all lanes
    int32_t two;
    memcpy(&two, p, sizeof two);
    return wholes{} + two;
}

// total[r] += rows [row, row + R) of `x` times lots of `inputs` each, from input `k` on.
template <int R, bool HAS_OFFSETS>
__attribute__((noinline)) void add_words(const WordLots& lots, int64_t inputs, const Rounded& x, int64_t row, int64_t k,
                                         vec (*total)[2]) {
    const int64_t pieces = x.inputs / PIECE;
    for (int64_t i = 0; i < lots.count; i++, k += inputs) {
        const int16_t* from = x.words + row * x.inputs + k;
        const uint16_t* codes = lots.codes[i];
        wholes sums[R][REGISTERS] = {};
        for (int64_t j = 0; j < inputs; j += 2, codes += 2 * TILE) {
            wholes columns[REGISTERS];
            for (int c = 0; c < REGISTERS; c++) columns[c] = load_register<wholes>(codes, c);
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) {
                const wholes pair = splat2(from + r * x.inputs + j);
                for (int c = 0; c < REGISTERS; c++) sums[r][c] = dot2(sums[r][c], columns[c], pair);
            }
        }
        numbers scales[REGISTERS], offsets[REGISTERS];
        for (int c = 0; c < REGISTERS; c++) {
            scales[c] = load_register<numbers>(lots.scales[i], c);
            offsets[c] = load_register<numbers>(lots.offsets[i], c);
        }
        const int64_t piece = row * pieces + k / PIECE;
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            const float scale = x.scales[piece + r * pieces];
            float of_codes = 0;
            if constexpr (HAS_OFFSETS)
                of_codes = inputs == PIECE ? x.scaled_sums[piece + r * pieces]
                                           : scale * x.sum_of((row + r) * x.inputs + k, inputs);
            for (int c = 0; c < REGISTERS; c++) {
                numbers sum = load_register<numbers>(total[r], c);
                sum += scales[c] * scale * __builtin_convertvector(sums[r][c], numbers);
                if constexpr (HAS_OFFSETS) sum += offsets[c] * of_codes;
                memcpy((float*)total[r] + c * WIDTH, &sum, sizeof sum);
            }
        }
    }
}

// Calls f(first row, number of rows as a constant) for all rows, as many as registers hold at once.
template <int R = ROWS_BY_WORDS, class F>
inline void in_blocks(int64_t row, int64_t rows, F&& f) {
    for (; rows - row >= R; row += R) f(row, std::integral_constant<int, R>());
    if constexpr (R > 1) in_blocks<R / 2>(row, rows, f);
}

inline bool is_for_words(const Packed& w, int64_t rows) {
    return rows >= (w.bits == 8 ? FEWEST_BYTES_BY_WORDS : FEWEST_BY_WORDS);
}

// Like multiply_all in quantised.h, for one tile. Rows that are done are taken at once, while others are multiplied: by
// then a column of what comes out may be far from the cache.
template <class Take>
inline void multiply_by_words(const Packed& w, int64_t tile, const Rounded& x, int64_t rows, Take&& take) {
    constexpr int64_t PASSING = 128;  // rows that pass the same lots
    vec total[PASSING][2];
    WordLots lots;
    for (int64_t first = 0, count; first < rows; first += count) {
        count = std::min(PASSING, rows - first);
        WordReader reader(w, tile);
        for (int64_t k = 0, end; k < w.inputs; k = end) {
            reader.read(k, lots);
            end = k + lots.count * reader.inputs();
            in_blocks(0, count, [&](int64_t row, auto together) {
                vec (*to)[2] = total + row;
                if (k == 0) memset(to, 0, together() * sizeof *to);
                if (w.has_offsets) add_words<together(), true>(lots, reader.inputs(), x, first + row, k, to);
                else add_words<together(), false>(lots, reader.inputs(), x, first + row, k, to);
                for (int r = 0; end == w.inputs && r < together(); r++) {
                    if (w.bias)
                        for (int c = 0; c < 2; c++) to[r][c] += load(w.bias + tile * TILE + c * LANES);
                    take(first + row + r, tile, to[r][0], to[r][1]);
                }
            });
        }
    }
}

}  // namespace

#endif
