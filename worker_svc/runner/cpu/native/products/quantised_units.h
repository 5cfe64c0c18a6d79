// Products of many rows with weights kept as whole numbers, on the matrix units of some CPUs (AMX).
//
// These add up the products of 16 or 32 inputs with the upper and with the lower halves of 16 rows, exactly; what is
// made of the sums is what vectors make of them, bit for bit. So nobody can tell which of both computed a row.
#pragma once

#include "kept_codes.h"
#include "matrix_units.h"
#include "rounded_rows.h"

#ifdef SIGNALBOX_MATRIX_UNITS

namespace {

constexpr int64_t MOST_BYTES_BY_VECTORS = 47;  // rows, of codes of 8 bits, whose sums cost more
constexpr int64_t LOTS = 4;  // of inputs whose sums are kept in the first level cache at a time
constexpr int64_t PASSING_ROWS = 256;  // that pass the same lots

// Weights of one tile, of `LOTS` times 16 or 32 inputs. Codes of 8 bits: bytes with signs, four inputs of a column lie
// together. Others: bfloat16, two inputs of a column lie together.
template <int BITS>
struct Lots {
    alignas(64) uint8_t codes[LOTS][PIECE * TILE * 8 / STORED_BITS<BITS>];
    vec scales[LOTS][2], offsets[LOTS][2];
};

inline void unpack8(const uint8_t* from, int64_t bytes, uint8_t* to) {
    for (int64_t i = 0; i < bytes; i += 64)
        _mm512_store_si512(to + i, _mm512_xor_si512(_mm512_loadu_si512(from + i), _mm512_set1_epi8(-128)));
}

// A word has four inputs of its column in the lower halves of the bytes and the next four in the upper ones: two of
// them, the first and the third or the second and the fourth, are found at a time.
template <int BITS>
inline void unpack4(const uint8_t* from, int64_t bytes, uint8_t* to) {
    // -8 to 7, and twice what E2M1 stands for.
    constexpr hvec WHOLE = {0xc100, 0xc0e0, 0xc0c0, 0xc0a0, 0xc080, 0xc040, 0xc000, 0xbf80,
                            0,      0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0};
    constexpr hvec DOUBLED = {0, 0x3f80, 0x4000, 0x4040, 0x4080, 0x40c0, 0x4100, 0x4140,
                              0, 0xbf80, 0xc000, 0xc040, 0xc080, 0xc0c0, 0xc100, 0xc140};
    // There twice, as five bits are looked at, of which the upper one is another number's.
    const hvec numbers = BITS == E2M1 ? DOUBLED : WHOLE;
    const __m512i table = _mm512_broadcast_i64x4((__m256i)numbers);
    for (int64_t i = 0; i < bytes; i += 64) {
        const __m512i words = _mm512_loadu_si512(from + i);
        uint8_t* at = to + i / 128 * 512 + i % 128;
        _mm512_store_si512(at, _mm512_permutexvar_epi16(words, table));
        _mm512_store_si512(at + 128, _mm512_permutexvar_epi16(_mm512_srli_epi16(words, 8), table));
        _mm512_store_si512(at + 256, _mm512_permutexvar_epi16(_mm512_srli_epi16(words, 4), table));
        _mm512_store_si512(at + 384, _mm512_permutexvar_epi16(_mm512_srli_epi16(words, 12), table));
    }
}

// Reads a tile from its beginning to its end, `N` inputs at a time.
template <int BITS, int N>
class TileReader {
  public:
    TileReader(const Packed& w, int64_t tile) : place_(w, tile) {}

    void read(int64_t count, Lots<BITS>& lots) {
        for (int64_t i = 0; i < count; i++) {
            const uint8_t* codes = place_.next(N, LOT_BYTES);
            const GroupHead& head = place_.head();
            for (int c = 0; c < 2; c++) lots.scales[i][c] = head.scales[c], lots.offsets[i][c] = head.offsets[c];
            prefetch(codes + AHEAD_BYTES, LOT_BYTES);
            if constexpr (BITS == 8) unpack8(codes, LOT_BYTES, lots.codes[i]);
            else unpack4<BITS>(codes, LOT_BYTES, lots.codes[i]);
        }
        asm volatile("" ::: "memory");  // what loads into matrix units does not say that it reads
    }

  private:
    static constexpr int64_t LOT_BYTES = TILE * N * STORED_BITS<BITS> / 8;
    TilePlace place_;
};

// Registers: 0 to 3 sums, 4 and 5 the rows, 6 and 7 the weights. `bytes` of a row pass at once.
inline void configure_for_codes(int64_t rows, int64_t bytes) {
    struct alignas(64) {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config = {1, 0, {}, {64, 64, 64, 64, (uint16_t)bytes, (uint16_t)bytes, 64, 64}, {}};
    for (int i = 0; i < 6; i++) config.rows[i] = rows;
    for (int i : {6, 7}) config.rows[i] = bytes / 4;
    asm volatile("ldtilecfg %0" ::"m"(config));
}

constexpr int64_t UNIT_WIDTH = TILE * sizeof(float);  // bytes of a row of sums, and of two or four inputs of a tile

inline void load_codes(const uint8_t* codes) {
    _tile_loadd(6, codes, UNIT_WIDTH);
    _tile_loadd(7, codes + UNIT_WIDTH / 2, UNIT_WIDTH);
}

inline ivec load(const int32_t* p) {
    ivec v;
    memcpy(&v, p, sizeof v);
    return v;
}

// Two registers hold 32 columns of sums. They are named in instructions, so there is a function for each two.
template <class Number>
inline void store_first_sums(Number (*to)[TILE]) {
    _tile_stored(0, to[0], UNIT_WIDTH);
    _tile_stored(1, to[0] + LANES, UNIT_WIDTH);
}
template <class Number>
inline void store_second_sums(Number (*to)[TILE]) {
    _tile_stored(2, to[0], UNIT_WIDTH);
    _tile_stored(3, to[0] + LANES, UNIT_WIDTH);
}

// Products of a lot with 16 rows. 32 of 16 bits and at most 12 are below 2^24 together: floats add them up exactly.
template <int BITS>
struct LotSums {
    alignas(64) float whole[UNIT_ROWS][TILE];

    void multiply(const Rounded& x, int64_t row, int64_t k, const uint8_t* codes) {
        const bf16* at = x.halves + 2 * (row * x.inputs + k / PIECE * PIECE) + k % PIECE;
        const int64_t stride = 2 * x.inputs * sizeof(bf16);
        _tile_zero(0);
        _tile_zero(1);
        load_codes(codes);
        _tile_loadd(4, at, stride);
        _tile_loadd(5, at + PIECE, stride);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(0, 5, 6);
        _tile_dpbf16ps(1, 5, 7);
        store_first_sums(whole);
    }
    vec total(int64_t r, int c) const { return load(whole[r] + c * LANES); }
};

template <>
struct LotSums<8> {
    alignas(64) int32_t high[UNIT_ROWS][TILE], low[UNIT_ROWS][TILE];

    void multiply(const Rounded& x, int64_t row, int64_t k, const uint8_t* codes) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        load_codes(codes);
        _tile_loadd(4, x.high + row * x.inputs + k, x.inputs);
        _tile_loadd(5, x.low + row * x.inputs + k, x.inputs);
        _tile_dpbssd(0, 4, 6);
        _tile_dpbssd(1, 4, 7);
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
        store_first_sums(high);
        store_second_sums(low);
    }
    vec total(int64_t r, int c) const {
        return __builtin_convertvector((load(high[r] + c * LANES) << 8) + load(low[r] + c * LANES), vec);
    }
};

// total[r] += what was added up of `count` lots, from input `k` on, for rows [row, row + R) of `x`; `at` is the place
// of the first one in the sums. The arithmetic is that of multiply_tile in quantised.h.
template <int R, int BITS, int N, bool HAS_OFFSETS>
inline void add_lots(const Lots<BITS>& lots, int64_t count, const LotSums<BITS>* sums, int64_t at, const Rounded& x,
                     int64_t row, int64_t k, vec (*result)[2]) {
    vec total[R][2];
    memcpy(total, result, sizeof total);
    for (int64_t i = 0; i < count; i++) {
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            const int64_t input = (row + r) * x.inputs + k + i * N;
            const float scale = x.scales[input / PIECE];
            for (int c = 0; c < 2; c++) total[r][c] += lots.scales[i][c] * scale * sums[i].total(at + r, c);
            if constexpr (HAS_OFFSETS) {
                const int32_t of_codes = x.sum_of(input, N);
                for (int c = 0; c < 2; c++) total[r][c] += lots.offsets[i][c] * (scale * of_codes);
            }
        }
    }
    memcpy(result, total, sizeof total);
}

// total [rows][2] = rows [row, row + rows) of `x` times one tile.
template <int BITS, int N, bool HAS_OFFSETS>
__attribute__((noinline)) void multiply_tile_by_units(const Packed& w, int64_t tile, const Rounded& x, int64_t row,
                                                      int64_t rows, vec (*total)[2]) {
    Lots<BITS> lots;
    LotSums<BITS> sums[LOTS];
    TileReader<BITS, N> reader(w, tile);
    memset(total, 0, rows * sizeof *total);
    for (int64_t k = 0, count; k < w.inputs; k += count * N) {
        count = std::min(LOTS, (w.inputs - k) / N);
        reader.read(count, lots);
        for (int64_t first = 0; first < rows; first += UNIT_ROWS) {
            // The last ones are computed with some that were there before: there may be no 16 rows to read from here
            // on.
            const int64_t start = std::max<int64_t>(row + std::min(first, rows - UNIT_ROWS), 0);
            for (int64_t i = 0; i < count; i++) sums[i].multiply(x, start, k + i * N, lots.codes[i]);
            const int64_t skipped = row + first - start, end = std::min(rows - first, UNIT_ROWS);
            auto add = [&](auto together, int64_t r) {
                add_lots<together(), BITS, N, HAS_OFFSETS>(lots, count, sums, skipped + r, x, row + first + r, k,
                                                           total + first + r);
            };
            int64_t r = 0;
            for (; r + 4 <= end; r += 4) add(std::integral_constant<int, 4>(), r);
            for (; r < end; r++) add(std::integral_constant<int, 1>(), r);
        }
    }
}

inline bool is_for_units(const Packed& w, int64_t rows) {
    return uses_matrix_units && rows > (w.bits == 8 ? MOST_BYTES_BY_VECTORS : MOST_CODES_BY_VECTORS);
}

// Like multiply_all in quantised.h.
template <class Take>
inline void multiply_codes_by_units(const Packed& w, int64_t tile, const Rounded& x, int64_t rows, Take&& take) {
    vec total[PASSING_ROWS][2];
    auto multiply = [&](auto bits, auto inputs, int64_t row, int64_t count) {
        if (w.has_offsets) multiply_tile_by_units<bits(), inputs(), true>(w, tile, x, row, count, total);
        else multiply_tile_by_units<bits(), inputs(), false>(w, tile, x, row, count, total);
    };
    constexpr std::integral_constant<int, 4> four;
    constexpr std::integral_constant<int, E2M1> e2m1;
    constexpr std::integral_constant<int, 8> eight;
    constexpr std::integral_constant<int, PIECE> piece;
    constexpr std::integral_constant<int, HALF> half;
    const bool has_halves = w.group % PIECE;
    configure_for_codes(std::min(rows, UNIT_ROWS), (has_halves ? HALF : PIECE) * (w.bits == 4 ? sizeof(bf16) : 1));
    for (int64_t row = 0, count; row < rows; row += count) {
        count = std::min(PASSING_ROWS, rows - row);
        if (w.is_e2m1 && has_halves) multiply(e2m1, half, row, count);
        else if (w.is_e2m1) multiply(e2m1, piece, row, count);
        else if (w.bits == 4) multiply(four, piece, row, count);
        else if (has_halves) multiply(eight, half, row, count);
        else multiply(eight, piece, row, count);
        for (int64_t r = 0; r < count; r++) {
            vec low = total[r][0], high = total[r][1];
            if (w.bias) low += load(w.bias + tile * TILE), high += load(w.bias + tile * TILE + LANES);
            take(row + r, tile, low, high);
        }
    }
    asm volatile("tilerelease");
}

}  // namespace

#endif
