// A product cut into parts for threads: some tiles of columns for some rows each.
#pragma once

#include <algorithm>
#include <cstdint>

namespace {

// Every tile of every row is in one part. Parts differ by one tile, and by 16 rows, at most; what they have may be
// anything: a row's result depends on nothing but the row.
class Parts {
  public:
    // row_bytes: of a row in the cache that rows are to stay in while tiles pass them; 0: they need not stay.
    Parts(int64_t tiles, int64_t rows, int64_t row_bytes, int64_t threads)
        : tiles_(tiles), rows_(rows), units_(divided(rows, UNIT)), parts_(num_parts(tiles, rows, threads)),
          groups_(num_groups(rows, row_bytes, threads)) {}

    int64_t count() const { return rows_ ? parts_ * groups_ : 0; }

    // That a thread takes from the list at a time: fewer where that would leave others without.
    int64_t at_a_time(int64_t threads) const { return std::clamp<int64_t>(count() / (4 * threads), 1, 4); }

    // f(first tile, end tile, first row, number of rows) for part `i`.
    template <class F>
    void with(int64_t i, F&& f) const {
        const int64_t group = i / parts_, part = i % parts_, first = first_row(group);
        f(part * tiles_ / parts_, (part + 1) * tiles_ / parts_, first, first_row(group + 1) - first);
    }

  private:
    static constexpr int64_t UNIT = 16;  // rows that matrix units take
    static constexpr int64_t ROWS_OF_FOUR_TILES = 2, ROWS_OF_TWO_TILES = 16;  // at most; of one if there are more
    static constexpr int64_t LEAST_ROWS = 64;  // of a group that is there for the cache
    static constexpr int64_t CACHED_BYTES = 1 << 20;  // of rows in a core's second cache
    const int64_t tiles_, rows_, units_, parts_, groups_;

    static int64_t divided(int64_t a, int64_t b) { return (a + b - 1) / b; }

    // Of few rows parts have several tiles each.
    static int64_t num_parts(int64_t tiles, int64_t rows, int64_t threads) {
        const int64_t together = rows <= ROWS_OF_FOUR_TILES ? 4 : rows <= ROWS_OF_TWO_TILES ? 2 : 1;
        return std::min(tiles, divided(divided(tiles, together), threads) * threads);
    }

    // One, unless the cache holds no more, or there are threads for which there is no tile.
    int64_t num_groups(int64_t rows, int64_t row_bytes, int64_t threads) const {
        const int64_t for_cache = std::min(divided(rows, LEAST_ROWS), divided(rows * row_bytes, CACHED_BYTES));
        return std::max({int64_t(1), for_cache, std::min(divided(threads, parts_), units_)});
    }

    int64_t first_row(int64_t group) const { return std::min(rows_, units_ * group / groups_ * UNIT); }
};

}  // namespace
