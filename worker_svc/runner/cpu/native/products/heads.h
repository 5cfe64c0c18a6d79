// Products of the parts of rows with matrices: part `head` of each row with matrix `head`.
#pragma once

#include "linear.h"

#ifdef SIGNALBOX_DOT

namespace {

// `weight` [heads, outputs / 32, inputs / 2, 32, 2] as one packed matrix of all heads' outputs; `x` and `out` are
// [rows, heads, inputs] and [rows, heads, outputs] with strides of their own.
inline void linear_heads(const Packed& w, const bf16* x, bf16* out, int64_t rows, int64_t heads, int64_t x_row,
                         int64_t x_head, int64_t out_row, int64_t out_head, int32_t threads) {
    const int64_t tiles = num_tiles(w), tiles_of_head = tiles / heads, pairs = w.inputs / 2;
#pragma omp parallel for schedule(dynamic, 8) num_threads(threads) if (threads > 1)
    for (int64_t tile = 0; tile < tiles; tile++) {
        const int64_t head = tile / tiles_of_head;
        const bf16* weight = (const bf16*)w.weight + tile * pairs * 2 * TILE;
        bf16* to = out + head * out_head + tile % tiles_of_head * TILE;
        for (int64_t r = 0; r < rows; r += ROWS)
            with_rows(rows - r, [&](auto count) {
                vec total[count()][2] = {};
                multiply<count(), 2>(x + head * x_head + r * x_row, x_row, weight, pairs, total);
                for (int i = 0; i < count(); i++)
                    for (int c = 0; c < 2; c++) store(to + (r + i) * out_row + c * LANES, total[i][c]);
            });
    }
}

}  // namespace

#endif
