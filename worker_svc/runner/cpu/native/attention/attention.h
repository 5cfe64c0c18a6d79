// Attention of decode rows over the paged cache: one task per row, or per some splits of its context,
// over all heads. Splits lie at fixed positions, and each has results of its own, whatever the tasks are.
#pragma once

#include "keys_and_values.h"

// Fields as in kernels.py. Heads of a token lie together; all strides count elements.
struct Attention {
    const void *query, *keys, *values;
    void* out;
    const int32_t *query_starts, *positions;
    const uint8_t* ways;  // [rows] how each row's tokens attend
    const int32_t* block_tables;
    const float* sinks;
    int64_t query_stride, out_stride;
    int64_t num_rows, table_width, num_heads, num_kv_heads, key_dim, value_dim, block_size, window;
    int64_t value_stride;  // from position to position of a block: value_dim, or key_dim where values are parts of keys
    float scaling, softcap;
    int32_t is_bf16, num_threads;
};

namespace {

constexpr int64_t SPLIT = 128;  // positions that one attention task looks at

// As ways.py has them. A token's results are the same by the first and the last.
enum Way : uint8_t {
    DECODE = 0,
    PROMPT = 1,
    AGAIN = 2,  // one of many rows whose tokens were decoded once: a single task, with results that nobody else holds
};

// Keys [start, end), of one split or of several whole ones.
struct Task {
    int64_t row, start, end;
    // Of its partial results [splits, query tokens, heads, value_dim + 2]: sums, largest score, sum of weights.
    // Negative: they are its own.
    int64_t offset;
    bool is_row;  // the row has no other tasks
};

inline int64_t first_key(const Attention& a, int64_t position) {
    return a.window ? std::max<int64_t>(0, position - a.window + 1) : 0;
}

// Turns the scores of keys [low, high) of a split into weights; the rest of their vectors becomes 0.
void weigh(const Attention& a, float* scores, int64_t low, int64_t high, float* partial) {
    float *best = partial + a.value_dim, *total = best + 1;
    *best = -INFINITY;
    *total = 0;
    if (low >= high) return;
    int64_t first = low / LANES * LANES, last = (high + LANES - 1) / LANES * LANES;
    for (int64_t i = first; i < low; i++) scores[i] = 0;  // whatever was there, it must be a number
    for (int64_t i = high; i < last; i++) scores[i] = 0;
    vec most = splat(-INFINITY);
    for (int64_t i = first; i < last; i += LANES) {
        vec s = load(scores + i) * a.scaling;
        if (a.softcap) s = a.softcap * tanh_of(s / a.softcap);
        store(scores + i, s);
    }
    for (int64_t i = first; i < low; i++) scores[i] = -INFINITY;
    for (int64_t i = high; i < last; i++) scores[i] = -INFINITY;
    for (int64_t i = first; i < last; i += LANES) most = larger(load(scores + i), most);
    *best = max(most);
    vec sums{};
    for (int64_t i = first; i < last; i += LANES) {
        vec s = load(scores + i);
        vec w = s > splat(-INFINITY) ? exponential(s - *best) : vec{};
        store(scores + i, w);
        sums += w;
    }
    *total = sum(sums);
}

constexpr int64_t ATTENTION_AHEAD = 16384;  // bytes between what is read and what is fetched

// One split of a task.
template <class T>
struct Split {
    const Attention& a;
    const Task& task;
    const int64_t start, end;  // keys
    float* const partials;  // of this split
    const int32_t* const table = a.block_tables + task.row * a.table_width;
    const int64_t bs = a.block_size, group = a.num_heads / a.num_kv_heads, base = start / SPLIT * SPLIT;
    const int64_t start_token = a.query_starts[task.row], tokens = a.query_starts[task.row + 1] - start_token;
    const int64_t width = SPLIT + bs + LANES, stride = a.value_dim + 2;
    const int64_t first_block = start / bs, last_block = (end - 1) / bs;
    const int64_t key_bytes = bs * a.key_dim * sizeof(T), value_bytes = bs * a.value_stride * sizeof(T);
    const int64_t ahead_blocks = std::clamp<int64_t>(ATTENTION_AHEAD / (a.num_kv_heads * key_bytes), 1, 8);

    const T* keys(int64_t b, int64_t h) const {
        return (const T*)a.keys + (table[b] * a.num_kv_heads + h) * bs * a.key_dim;
    }
    const T* values(int64_t b, int64_t h) const {
        return (const T*)a.values + (table[b] * a.num_kv_heads + h) * bs * a.value_stride;
    }
    // What to fetch while block b is scored, or its values are added: first keys, then values, then the next split's
    // keys.
    Ahead ahead_of_keys(int64_t b, int64_t h) const {
        b += ahead_blocks;
        if (b <= last_block) return {(const char*)keys(b, h), (const char*)keys(b, h) + key_bytes};
        return fetched_values(first_block + b - last_block - 1, h);
    }
    Ahead ahead_of_values(int64_t b, int64_t h) const {
        b += ahead_blocks;
        if (b <= last_block) return fetched_values(b, h);
        if (b * bs >= task.end) return {nullptr, nullptr};
        return {(const char*)keys(b, h), (const char*)keys(b, h) + key_bytes};
    }
    Ahead fetched_values(int64_t b, int64_t h) const {
        // Values that are parts of keys were fetched with them.
        if (b > last_block || a.value_stride != a.value_dim) return {nullptr, nullptr};
        return {(const char*)values(b, h), (const char*)values(b, h) + value_bytes};
    }

    void score(float* scores) const {
        for (int64_t b = first_block; b <= last_block; b++) {
            // A block larger than a split is looked at in the parts that belong to the split.
            const int64_t begin = std::max(b * bs, base), to = std::min((b + 1) * bs, base + SPLIT);
            const int64_t count = std::min(to, (end + LANES - 1) / LANES * LANES) - begin;
            for (int64_t h = 0; h < a.num_kv_heads; h++) {
                Ahead ahead = ahead_of_keys(b, h);
                const T* block = keys(b, h) + (begin - b * bs) * a.key_dim;
                for (int64_t t = 0; t < tokens; t++) {
                    const T* query = (const T*)a.query + (start_token + t) * a.query_stride;
                    for (int64_t g = h * group; g < (h + 1) * group; g++)
                        score_keys(block, query + g * a.key_dim, a.key_dim, count, bs % LANES == 0,
                                   scores + (t * a.num_heads + g) * width + begin - base,
                                   key_bytes / bs / (group * tokens) + 1, ahead);
                }
            }
        }
    }

    void add(int64_t t, const float* scores) const {
        const int64_t position = a.positions[start_token + t];
        const int64_t low = std::max(first_key(a, position), start), high = std::min(position + 1, end);
        if (low >= high) return;
        float* sums = partials + t * a.num_heads * stride;
        for (int64_t b = low / bs; b <= (high - 1) / bs; b++)
            for (int64_t h = 0; h < a.num_kv_heads; h++) {
                Ahead ahead = t ? Ahead{nullptr, nullptr} : ahead_of_values(b, h);
                const int64_t g = h * group;
                add_all_values<T>({values(b, h), a.value_stride, std::max(low, b * bs) - b * bs,
                                   std::min(high, (b + 1) * bs) - b * bs,
                                   scores + (t * a.num_heads + g) * width + b * bs - base, width, sums + g * stride,
                                   stride, value_bytes / bs}, group, a.value_dim, ahead);
            }
        for (int64_t g = 0; g < a.num_heads; g++) put_in_order((const T*)nullptr, sums + g * stride, a.value_dim);
    }

    void attend() const {
        static thread_local std::vector<float> buffer;
        if (int64_t(buffer.size()) < tokens * a.num_heads * width) buffer.resize(tokens * a.num_heads * width);
        float* scores = buffer.data();
        score(scores);
        for (int64_t t = 0; t < tokens; t++) {
            const int64_t position = a.positions[start_token + t];
            const int64_t low = std::max(first_key(a, position), start) - base;
            const int64_t high = std::min(position + 1, end) - base;
            for (int64_t g = 0; g < a.num_heads; g++) {
                float* partial = partials + (t * a.num_heads + g) * stride;
                std::fill(partial, partial + a.value_dim, 0.0f);
                weigh(a, scores + (t * a.num_heads + g) * width, low, high, partial);
            }
            add(t, scores);
        }
    }
};

// Joins the partial results of a head's splits, `step` floats apart, in ascending order.
template <class T>
void join(const Attention& a, const float* partial, int64_t splits, int64_t step, int64_t head, T* out) {
    const float* best = partial + a.value_dim;
    float most = a.sinks ? a.sinks[head] : -INFINITY;
    for (int64_t s = 0; s < splits; s++) most = std::max(most, best[s * step]);
    float total = a.sinks ? std::exp(a.sinks[head] - most) : 0.0f;
    static thread_local std::vector<float> share;
    share.resize(splits);
    for (int64_t s = 0; s < splits; s++) {
        const float score = best[s * step];
        share[s] = score == most && most > -INFINITY ? 1.0f : score > -INFINITY ? std::exp(score - most) : 0.0f;
        // Said, as compilers that vectorise the products here round them before they are added: some CPUs' do, by cost.
        total = std::fma(share[s], best[s * step + 1], total);
    }
    for (int64_t d = 0; d < a.value_dim; d += LANES) {
        vec v{};
        for (int64_t s = 0; s < splits; s++) v += share[s] * load(partial + s * step + d);
        store(out + d, v / total);
    }
}

constexpr int64_t MOST_SPLITS = 8;  // of a task
constexpr int64_t TASKS_PER_THREAD = 8;  // at least, where there are as many splits

// The tasks of a batch's rows that are not a prompt's, the same for all layers of one window.
struct Plan {
    std::vector<Task> tasks;
    std::vector<int64_t> row_tasks;  // [rows + 1] first task of each row
    int64_t size = 0, bytes = 0;  // floats of partial results; keys and values that are read
    bool has_joins = false;  // some rows have several tasks

    Plan(const Attention& a, int64_t element_size, int64_t threads) : row_tasks(1, 0) {
        int64_t splits = 0;
        for (int64_t r = 0; r < a.num_rows; r++)
            if (a.ways[r] == DECODE) splits += num_splits(first(a, r), end(a, r));
        const int64_t together = std::clamp<int64_t>(splits / (TASKS_PER_THREAD * threads), 1, MOST_SPLITS);
        for (int64_t r = 0; r < a.num_rows; r++) {
            if (a.ways[r] == DECODE) add_row(a, r, together);
            if (a.ways[r] == AGAIN) tasks.push_back({r, first(a, r), end(a, r), -1, true});
            row_tasks.push_back(tasks.size());
            if (a.ways[r] == PROMPT) continue;
            bytes += (end(a, r) - first(a, r)) * a.num_kv_heads * (a.key_dim + a.value_dim) * element_size;
        }
    }

    static int64_t num_splits(int64_t start, int64_t end) { return (end - 1) / SPLIT - start / SPLIT + 1; }
    static int64_t num_tokens(const Attention& a, int64_t r) { return a.query_starts[r + 1] - a.query_starts[r]; }

  private:
    static int64_t first(const Attention& a, int64_t r) { return first_key(a, a.positions[a.query_starts[r]]); }
    static int64_t end(const Attention& a, int64_t r) { return a.positions[a.query_starts[r + 1] - 1] + 1; }

    void add_row(const Attention& a, int64_t r, int64_t together) {
        const int64_t last = end(a, r), count = tasks.size();
        for (int64_t k = first(a, r), next; k < last; k = next) {
            next = std::min(last, (k / SPLIT + together) * SPLIT);
            tasks.push_back({r, k, next, size, false});
            size += num_splits(k, next) * num_tokens(a, r) * a.num_heads * (a.value_dim + 2);
        }
        tasks.back().is_row = int64_t(tasks.size()) == count + 1;
        has_joins |= !tasks.back().is_row;
    }
};

template <class T>
void join_splits(const Attention& a, int64_t row, int64_t splits, const float* partials) {
    const int64_t start = a.query_starts[row], tokens = a.query_starts[row + 1] - start;
    const int64_t stride = a.value_dim + 2, step = tokens * a.num_heads * stride;
    for (int64_t i = 0; i < tokens * a.num_heads; i++)
        join(a, partials + i * stride, splits, step, i % a.num_heads,
             (T*)a.out + (start + i / a.num_heads) * a.out_stride + i % a.num_heads * a.value_dim);
}

template <class T>
void attend_task(const Attention& a, const Task& task, float* partials) {
    const int64_t size = Plan::num_tokens(a, task.row) * a.num_heads * (a.value_dim + 2);
    const int64_t splits = Plan::num_splits(task.start, task.end);
    static thread_local std::vector<float> own;
    if (task.offset < 0 && int64_t(own.size()) < splits * size) own.resize(splits * size);
    float* const first = task.offset < 0 ? own.data() : partials + task.offset;
    float* to = first;
    for (int64_t k = task.start, next; k < task.end; k = next, to += size) {
        next = std::min(task.end, (k / SPLIT + 1) * SPLIT);
        Split<T>{a, task, k, next, to}.attend();
    }
    if (task.is_row) join_splits<T>(a, task.row, splits, first);
}

// Of a row whose tasks are all done, if there are several.
template <class T>
void join_row(const Attention& a, const Plan& plan, int64_t row, const float* partials) {
    const int64_t first = plan.row_tasks[row], end = plan.row_tasks[row + 1];
    if (end - first < 2) return;
    const int64_t splits = Plan::num_splits(plan.tasks[first].start, plan.tasks[end - 1].end);
    join_splits<T>(a, row, splits, partials + plan.tasks[first].offset);
}

// All rows but those of prompts.
template <class T>
void attend(const Attention& a) {
    static thread_local std::vector<float> buffer;
    const Plan plan(a, sizeof(T), a.num_threads);
    buffer.resize(plan.size);
    float* partials = buffer.data();  // of this thread, not of those that help
#pragma omp parallel num_threads(a.num_threads) if (a.num_threads > 1 && plan.bytes > PARALLEL_BYTES)
    {
#pragma omp for schedule(dynamic, 1)
        for (size_t i = 0; i < plan.tasks.size(); i++) attend_task<T>(a, plan.tasks[i], partials);
        if (plan.has_joins) {
#pragma omp for schedule(static)
            for (int64_t r = 0; r < a.num_rows; r++) join_row<T>(a, plan, r, partials);
        }
    }
}

}  // namespace
