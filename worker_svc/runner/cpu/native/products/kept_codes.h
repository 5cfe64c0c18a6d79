// What a tile of weights that are kept as whole numbers begins with, and how long it is: see packed_codes.py.
#pragma once

#include "linear.h"

namespace {

// Kinds of codes: whole numbers of 8 or 4 bits, and floating point numbers of 4, of which E2M1 has 16. These, doubled,
// are whole numbers from -12 to 12: what takes 5 bits once it is looked up.
constexpr int E2M1 = 5;
template <int BITS> constexpr int STORED_BITS = BITS == E2M1 ? 4 : BITS;

// Each byte's number of E2M1, doubled, and 12 more; bytes are below 16.
alignas(16) constexpr uint8_t E2M1_CODES[] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
#ifdef __aarch64__
inline uint8x16_t e2m1_codes(uint8x16_t codes) {
    return vqtbl1q_u8(load_register<uint8x16_t>(E2M1_CODES), codes);
}
#endif
inline ivec e2m1_codes(ivec codes) {
#ifdef __AVX512BW__
    const __m512i table = _mm512_broadcast_i32x4(_mm_load_si128((const __m128i*)E2M1_CODES));
    return (ivec)_mm512_shuffle_epi8(table, (__m512i)codes);
#elif defined(__AVX2__)
    const __m256i table = _mm256_broadcastsi128_si256(_mm_load_si128((const __m128i*)E2M1_CODES));
    for (int i = 0; i < 2; i++) ((__m256i*)&codes)[i] = _mm256_shuffle_epi8(table, ((const __m256i*)&codes)[i]);
    return codes;
#elif defined(__aarch64__)
    for (int i = 0; i < 4; i++) ((uint8x16_t*)&codes)[i] = e2m1_codes(((const uint8x16_t*)&codes)[i]);
    return codes;
#else
    for (int i = 0; i < 4 * LANES; i++) ((uint8_t*)&codes)[i] = E2M1_CODES[((const uint8_t*)&codes)[i]];
    return codes;
#endif
}

inline ivec load_words(const uint8_t* p) {
    ivec words;
    memcpy(&words, p, sizeof words);
    return words;
}

struct f16 {
    uint16_t bits;
};

inline vec load(const f16* p) {
#ifdef __AVX512F__
    __m256i h;
    memcpy(&h, p, sizeof h);
    return (vec)_mm512_cvtph_ps(h);
#else
    vec v;
#ifdef __F16C__
    for (int i = 0; i < 2; i++) ((__m256*)&v)[i] = _mm256_cvtph_ps(((const __m128i_u*)p)[i]);
#else
    // Exponents move by 112 in a multiplication, which is exact for numbers below the smallest normal one, too.
    hvec h;
    memcpy(&h, p, sizeof h);
    const uvec bits = __builtin_convertvector(h, uvec);
    v = (vec)((bits & 0x7fff) << 13) * 0x1p112f;
    v = (vec)((uvec)v | (bits & 0x8000) << 16);
#endif
    return v;
#endif
}

// What is added up exactly of a row: the products with its upper and with its lower halves.
struct ExactSums {
    ivec high[2] = {}, low[2] = {};
};

// What a group of a tile begins with: 32 scales, and as many offsets if there are any.
struct GroupHead {
    vec scales[2], offsets[2];
};

inline GroupHead read_head(const Packed& w, const uint8_t* at) {
    auto read = [&](int64_t i) {
        return w.scale_bytes == 2 ? load((const f16*)at + i) : load((const float*)at + i);
    };
    GroupHead head{{read(0), read(LANES)}, {}};
    if (w.has_offsets) head.offsets[0] = read(TILE), head.offsets[1] = read(TILE + LANES);
    return head;
}

inline int64_t head_bytes(const Packed& w) { return TILE * w.scale_bytes * (1 + (w.has_offsets != 0)); }
inline int64_t group_bytes(const Packed& w) {
    return head_bytes(w) + TILE * w.group * w.bits / 8;
}
inline int64_t tile_bytes(const Packed& w) { return group_bytes(w) * (w.inputs / w.group); }

// Goes through a tile from its beginning to its end.
class TilePlace {
  public:
    TilePlace(const Packed& w, int64_t tile) : w_(w), at_((const uint8_t*)w.weight + tile * tile_bytes(w)) {}

    // The codes of the next inputs, which belong to one group; they have so many bytes.
    const uint8_t* next(int64_t inputs, int64_t bytes) {
        if (left_ == 0) {
            head_ = read_head(w_, at_);
            at_ += head_bytes(w_);
            left_ = w_.group;
        }
        left_ -= inputs;
        at_ += bytes;
        return at_ - bytes;
    }
    const GroupHead& head() const { return head_; }  // of these codes' group
    const uint8_t* end() const { return at_; }

  private:
    const Packed& w_;
    const uint8_t* at_;
    int64_t left_ = 0;  // inputs of the group
    GroupHead head_;
};

}  // namespace
