// Threads that do lists of works together, one list after another.
#pragma once

#include <atomic>
#include <cstdint>

namespace {

inline void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Waits for works and never for threads: a list is done when all its works are, though one of the threads be
// interrupted meanwhile, or still asleep. Such a one finds later that lists were done without it, and takes part in the
// next.
class Team {
  public:
    // A thread and how many lists it has been through.
    class Member {
      public:
        explicit Member(Team& team) : team_(team) {}

        // f(i) for all i below `count`, by whoever is free. Returns when all are done. All members have to call this
        // with the same counts in the same order.
        template <class F>
        void share(int64_t count, F&& f) {
            if (count > 0) team_.work(list_++, count, f);
        }

      private:
        Team& team_;
        uint32_t list_ = 0;
    };

  private:
    template <class F>
    void work(uint32_t list, int64_t count, F& f) {
        int64_t done = 0;
        for (uint64_t next = next_.load(std::memory_order_acquire); next >> 32 == list && uint32_t(next) < count;) {
            if (!next_.compare_exchange_weak(next, next + 1, std::memory_order_acq_rel)) continue;
            f(int64_t(uint32_t(next)));
            done++;
            next = next_.load(std::memory_order_acquire);
        }
        if (done && done_.fetch_add(done, std::memory_order_acq_rel) + done == count) begin(list + 1);
        else wait_for_end_of(list);
    }

    void begin(uint32_t list) {
        done_.store(0, std::memory_order_relaxed);
        next_.store(uint64_t(list) << 32, std::memory_order_release);
        list_.store(list, std::memory_order_release);
        list_.notify_all();
    }

    void wait_for_end_of(uint32_t list) {
        for (int spins = 0; spins < SPINS; spins++) {
            if (list_.load(std::memory_order_acquire) != list) return;
            pause();
        }
        // Somebody else may need this core: the one who is waited for, perhaps.
        list_.wait(list, std::memory_order_acquire);
    }

    // 20 to 150 us: who waits longer waits for somebody who was interrupted. Sleeping costs more than it seems: on a
    // virtual machine a core without work is given away, and a wake-up has to get it back.
    static constexpr int SPINS = 2000;
    alignas(64) std::atomic<uint64_t> next_{0};  // number of the list, and in it the work that nobody has taken yet
    alignas(64) std::atomic<int64_t> done_{0};  // works of the list
    alignas(64) std::atomic<uint32_t> list_{0};
};

}  // namespace
