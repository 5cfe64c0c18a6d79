// One product with quantised weights, for a CPU that is not here: reads a call from a file, writes what comes out.
//
// int64: rows, inputs, outputs, group, bits, scale bytes, offsets, E2M1, bfloat16, bytes of the weight; weight; rows.
#include <cstdio>

#include "kernels.cpp"

int main(int argc, char** argv) {
    if (argc != 3) return 2;
    FILE* in = fopen(argv[1], "rb");
    int64_t head[10];
    if (!in || fread(head, sizeof head, 1, in) != 1) return 3;
    const int64_t rows = head[0], inputs = head[1], outputs = head[2], item = head[8] ? 2 : 4;
    std::vector<char> weight(head[9]), x(rows * inputs * item), out(rows * outputs * item);
    if (fread(weight.data(), 1, weight.size(), in) != weight.size()) return 3;
    if (fread(x.data(), 1, x.size(), in) != x.size()) return 3;
    const Packed packed{weight.data(), nullptr, inputs, outputs, head[3], (int32_t)head[4], (int32_t)head[5],
                        (int32_t)head[6], (int32_t)head[7]};
    signalbox_linear_quantised(&packed, x.data(), out.data(), rows, (int32_t)head[8], 1);
    FILE* to = fopen(argv[2], "wb");
    return !to || fwrite(out.data(), 1, out.size(), to) != out.size() || fclose(to);
}
