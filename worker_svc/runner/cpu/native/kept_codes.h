// What a tile of weights that are kept as whole numbers begins with, and how long it is: see packed_codes.py.
#pragma once

#include "linear.h"

namespace {

// Kinds of codes: whole numbers of 8 or 4 bits, and floating point numbers of 4, of which E2M1 has 16. These, doubled,
// are whole numbers from -12 to 12: what takes 5 bits once it is looked up.
constexpr int E2M1 = 5;
template <int BITS> constexpr int STORED_BITS = BITS == E2M1 ? 4 : BITS;

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

}  // namespace
