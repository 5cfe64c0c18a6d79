// The kernels as a process: reads calls and the memory that they point to, makes them, and writes that memory back. It is
// run by an emulator for a CPU that is not here; emulated_kernels.py is the other end.
//
// All numbers are int64. First it tells whether it has the dot product, and the layouts of its structs: how many, then
// size, bytes before the last field, length of the name and the name of each. A call is: length of its name, number of
// segments, number of pointers; address and size of each segment; their bytes; where each pointer lies; the name. The
// segment at address 0 has the arguments, 8 bytes each. The answer: the bytes of all segments.
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "kernels.cpp"

namespace {

using Call = std::function<void(const char*)>;

template <class A>
A argument(const char* at) {
    A a;
    memcpy(&a, at, sizeof a);
    return a;
}

template <class... A>
Call call_of(void (*function)(A...)) {
    return [=](const char* at) {
        const std::tuple<A...> arguments{argument<A>(std::exchange(at, at + 8))...};  // in their order
        std::apply(function, arguments);
    };
}

const std::map<std::string, Call> CALLS = {
#define CALL(name) {#name, call_of(name)}
    CALL(signalbox_attend),
    CALL(signalbox_rope_and_write),
    CALL(signalbox_rms_norm),
    CALL(signalbox_gate),
    CALL(signalbox_argmax),
    CALL(signalbox_choose),
    CALL(signalbox_uniforms),
    CALL(signalbox_linear_quantised),
    CALL(signalbox_linear_plain),
    CALL(signalbox_mix_experts),
    CALL(signalbox_round_groups),
    CALL(signalbox_round_to_bytes),
    CALL(signalbox_pack_rows),
    CALL(signalbox_run_delta_net),
    CALL(signalbox_run_convolution),
    CALL(signalbox_run_selective_scan),
    CALL(signalbox_run_state_space),
#ifdef SIGNALBOX_DOT
    CALL(signalbox_linear),
    CALL(signalbox_linear_heads),
    CALL(signalbox_attend_all),
    CALL(signalbox_decode),
#endif
};

void read(void* to, size_t bytes) {
    if (fread(to, 1, bytes, stdin) != bytes) exit(feof(stdin) ? 0 : 3);
}
void write(const void* from, size_t bytes) {
    if (fwrite(from, 1, bytes, stdout) != bytes) exit(4);
}
void write(int64_t number) { write(&number, sizeof number); }

struct Segment {
    int64_t address;  // where it lies in the other process
    std::vector<char> bytes;
};

// What lies at an address of the other process.
char* find(std::vector<Segment>& segments, int64_t address) {
    for (Segment& s : segments)
        if (address >= s.address && address < s.address + (int64_t)s.bytes.size())
            return s.bytes.data() + (address - s.address);
    exit(5);
}

void tell() {
    write(signalbox_has_dot());
    int64_t count = 0;
    while (signalbox_layouts()[count].name) count++;
    write(count);
    for (const Layout* l = signalbox_layouts(); l->name; l++) {
        write(l->size), write(l->last), write(strlen(l->name));
        write(l->name, strlen(l->name));
    }
    fflush(stdout);
}

void answer() {
    int64_t head[3];
    read(head, sizeof head);
    std::vector<Segment> segments;
    for (int64_t i = 0; i < head[1]; i++) {
        int64_t place[2];
        read(place, sizeof place);
        segments.push_back({place[0], std::vector<char>(place[1])});
    }
    for (Segment& s : segments) read(s.bytes.data(), s.bytes.size());
    std::vector<int64_t> pointers(head[2]), targets;
    read(pointers.data(), pointers.size() * sizeof(int64_t));
    std::string name(head[0], ' ');
    read(name.data(), name.size());
    for (int64_t at : pointers) {
        char* place = find(segments, at);
        targets.push_back(argument<int64_t>(place));
        const char* here = find(segments, targets.back());
        memcpy(place, &here, sizeof here);
    }
    if (!CALLS.count(name)) exit(6);
    CALLS.at(name)(find(segments, 0));
    for (size_t i = 0; i < pointers.size(); i++) memcpy(find(segments, pointers[i]), &targets[i], sizeof(int64_t));
    for (const Segment& s : segments) write(s.bytes.data(), s.bytes.size());
    fflush(stdout);
}

}  // namespace

int main() {
    tell();
    while (true) answer();
}
