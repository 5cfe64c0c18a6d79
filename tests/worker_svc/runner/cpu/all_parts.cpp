// Parts of products for 1 to 256 threads: says what is wrong with the first one that is, and fails.
#include <cstdio>
#include <vector>

#include "products/partition.h"

namespace {

constexpr int64_t UNIT = 16;

int64_t rounded_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

const char* fault(int64_t tiles, int64_t rows, int64_t row_bytes, int64_t threads) {
    const Parts parts(tiles, rows, row_bytes, threads);
    const int64_t units = rounded_up(rows, UNIT);
    std::vector<int> seen(tiles * units);
    int64_t least_tiles = tiles, most_tiles = 0, least_units = units, most_units = 0;
    const char* wrong = nullptr;
    for (int64_t i = 0; i < parts.count(); i++)
        parts.with(i, [&](int64_t tile, int64_t end, int64_t first, int64_t count) {
            if (tile < 0 || end > tiles || first < 0 || first + count > rows) wrong = "a part is not of this product";
            else if (tile >= end || count <= 0) wrong = "a part is empty";
            else if (first % UNIT || (count % UNIT && first + count != rows)) wrong = "a unit of rows is cut";
            if (wrong) return;
            const int64_t of_rows = rounded_up(count, UNIT);
            for (int64_t t = tile; t < end; t++)
                for (int64_t u = 0; u < of_rows; u++) seen[t * units + first / UNIT + u]++;
            least_tiles = std::min(least_tiles, end - tile), most_tiles = std::max(most_tiles, end - tile);
            least_units = std::min(least_units, of_rows), most_units = std::max(most_units, of_rows);
        });
    if (wrong) return wrong;
    for (int times : seen)
        if (times != 1) return times ? "parts overlap" : "a part is missing";
    if (most_tiles - least_tiles > 1 || most_units - least_units > 1) return "parts are not of one size";
    if (parts.count() < std::min(threads, tiles * units)) return "a thread has nothing to do";
    if (parts.at_a_time(threads) > 1 && parts.at_a_time(threads) * threads > parts.count()) return "one takes too many";
    if (Parts(tiles, 0, row_bytes, threads).count()) return "no rows are no work";
    const int64_t cached = std::max<int64_t>(1 << 20, 64 * row_bytes);
    if (most_units > 4 && (most_units - 1) * UNIT * row_bytes > cached) return "rows do not stay in the cache";
    return nullptr;
}

}  // namespace

int main() {
    for (int64_t threads = 1; threads <= 256; threads++)
        for (int64_t tiles : {1, 2, 3, 17, 18, 30, 96, 257, 1536})
            for (int64_t rows : {1, 2, 3, 15, 16, 17, 33, 64, 100, 512, 2047})
                for (int64_t row_bytes : {0, 1152, 16384})
                    if (const char* wrong = fault(tiles, rows, row_bytes, threads)) {
                        printf("%s: %ld tiles, %ld rows of %ld bytes, %ld threads\n", wrong, (long)tiles, (long)rows,
                               (long)row_bytes, (long)threads);
                        return 1;
                    }
}
