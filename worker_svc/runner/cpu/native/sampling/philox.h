// Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011; the same as uniform.py's.
#pragma once

#include <array>
#include <cstdint>

namespace {

typedef std::array<uint32_t, 4> Words;

inline Words philox(Words x, uint64_t seed) {
    uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
    for (int round = 0; round < 10; round++) {
        const uint64_t a = 0xD2511F53ull * x[0], b = 0xCD9E8D57ull * x[2];
        x = {uint32_t(b >> 32) ^ x[1] ^ k0, uint32_t(b), uint32_t(a >> 32) ^ x[3] ^ k1, uint32_t(a)};
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return x;
}

// In [0, 1), with 53 random bits.
inline double uniform(uint64_t seed, Words counter) {
    const Words words = philox(counter, seed);
    return (double(words[0] >> 5) * double(1 << 26) + double(words[1] >> 6)) * 0x1p-53;
}

}  // namespace
