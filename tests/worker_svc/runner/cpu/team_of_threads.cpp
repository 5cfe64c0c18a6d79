// Lists of works done by a team, each from what the list before it left: an argument says how many members there are.
//
// Nothing but the team orders what they read and write, so that ThreadSanitizer finds it if the team does not.
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "team.h"

namespace {

constexpr int64_t LISTS = 300, MOST_WORKS = 23;

int64_t num_works(int64_t list) { return list * 7 % MOST_WORKS; }  // of some there are none

}  // namespace

int main(int, char** arguments) {
    Team team;
    std::vector<int64_t> before(MOST_WORKS, 1), after(MOST_WORKS), expected(before);
    for (int64_t list = 0; list < LISTS; list++) {
        const std::vector<int64_t> old = expected;
        for (int64_t i = 0; i < num_works(list); i++) expected[i] = (old[i] + 3 * old[MOST_WORKS - 1 - i]) % 1000003;
    }
    auto run = [&] {
        Team::Member member(team);
        for (int64_t list = 0; list < LISTS; list++) {
            const int64_t count = num_works(list);
            member.share(count, [&](int64_t i) {
                after[i] = (before[i] + 3 * before[MOST_WORKS - 1 - i]) % 1000003;
                std::this_thread::yield();  // or one member would do them all
            });
            member.share(count, [&](int64_t i) { before[i] = after[i]; });
        }
    };
    std::vector<std::thread> others;
    for (int i = 1; i < atoi(arguments[1]); i++) others.emplace_back(run);
    run();
    for (std::thread& other : others) other.join();
    if (before == expected) return 0;
    printf("a work was not done, or was done twice\n");
    return 1;
}
