// Ranks of one host give each other numbers, through memory that all of them have mapped.
#pragma once

#include <atomic>
#include <climits>
#include <cstdint>
#include <cstring>
#include <ctime>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "team.h"
#include "vectors.h"

namespace {

// What a rank has of an exchange, and what becomes of it.
struct Exchange {
    void* memory;  // a head with the words below, then two parts of `part_bytes` for each rank
    void* values;  // [count], what this rank gives; the sum, where there is one
    int64_t count, part_bytes;
    double seconds;  // what exchanges take is added: mostly waiting
    uint32_t number;  // of the last exchange
    int32_t rank, size;
    int32_t kind;  // 0: nothing is summed; 1: float, 2: bf16 are
    int32_t item_bytes;
    int32_t has_ended;  // 1: the group ended instead
};

constexpr int64_t HEAD = 1 << 16, LINE = 64;  // HEAD_BYTES of over_memory.py
constexpr int EXCHANGE_SPINS = 4000;
// So often a rank that sleeps looks whether the group has ended.
constexpr long LOOK_NS = 20'000'000;

inline std::atomic<uint32_t>& word(void* memory, int64_t line) {
    return *(std::atomic<uint32_t>*)((char*)memory + line * LINE);
}

// Two parts in turns: who writes into one has heard of all ranks that they are done with what was there before last.
inline char* part_of(const Exchange& e, int64_t rank) {
    return (char*)e.memory + HEAD + (2 * rank + (e.number & 1)) * e.part_bytes;
}

inline void sleep_on(std::atomic<uint32_t>& arrived, uint32_t seen) {
#ifdef __linux__
    const timespec patience{0, LOOK_NS};
    // Not FUTEX_PRIVATE_FLAG, as std::atomic::wait has it: those who wait are other processes.
    syscall(SYS_futex, &arrived, FUTEX_WAIT, seen, &patience, nullptr, 0);
#endif
}

inline void wake_all(std::atomic<uint32_t>& arrived) {
#ifdef __linux__
    syscall(SYS_futex, &arrived, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
#endif
}

// Until a rank has given what it has of this exchange. False: the group has ended.
inline bool wait_for(const Exchange& e, int64_t rank) {
    auto& arrived = word(e.memory, 1 + rank);
    auto& ended = word(e.memory, 0);
    for (int spins = 0;; spins++) {
        const uint32_t seen = arrived.load(std::memory_order_acquire);
        if (int32_t(seen - e.number) >= 0) return true;
        if (ended.load(std::memory_order_relaxed)) return false;
        if (spins < EXCHANGE_SPINS) pause();
        else sleep_on(arrived, seen);
    }
}

// The sum of what all ranks gave, in the order of ranks, so that it is the same at all of them.
template <class T>
void sum_parts(const Exchange& e) {
    T* out = (T*)e.values;
    for (int64_t i = 0; i < e.count; i += LANES) {
        vec sum = load((const T*)part_of(e, 0) + i);
        for (int64_t rank = 1; rank < e.size; rank++) sum += load((const T*)part_of(e, rank) + i);
        if (i + LANES <= e.count) store(out + i, sum);
        else
            for (int64_t j = i; j < e.count; j++) narrow(sum[j - i], out + j);
    }
}

inline double now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

// One exchange, of at most `part_bytes`.
inline void exchange(Exchange& e) {
    const double started = now();
    e.number++;
    memcpy(part_of(e, e.rank), e.values, e.count * e.item_bytes);
    auto& mine = word(e.memory, 1 + e.rank);
    mine.store(e.number, std::memory_order_release);
    wake_all(mine);
    e.has_ended = 0;
    for (int64_t rank = 0; rank < e.size && !e.has_ended; rank++) e.has_ended = !wait_for(e, rank);
    if (!e.has_ended && e.kind == 1) sum_parts<float>(e);
    if (!e.has_ended && e.kind == 2) sum_parts<bf16>(e);
    e.seconds += now() - started;
}

// The sum over all ranks of `count` numbers, in as many exchanges as these take; the same pieces at all of them.
inline void sum_over_ranks(Exchange& e, bf16* values, int64_t count) {
    const int64_t at_once = e.part_bytes / sizeof(bf16);
    e.kind = 2, e.item_bytes = sizeof(bf16), e.has_ended = 0;
    for (int64_t first = 0; first < count && !e.has_ended; first += at_once) {
        e.values = values + first, e.count = std::min(at_once, count - first);
        exchange(e);
    }
}

}  // namespace
