// All layers of a decoder of Llama's form in one call, in bfloat16: norm, Q K V, rotation, attention, projection, norm,
// gated MLP. The threads share the tiles of each product as they come free, so one that is interrupted delays no other.
#pragma once

#include <omp.h>

#include <map>

#include "attention/prefill.h"
#include "attention/rope.h"
#include "exchange.h"
#include "products/matrix_units.h"
#include "products/quantised.h"
#include "team.h"

// Fields as in decoder.py.
struct Layer {
    Packed qkv, out, gate_up, down;  // gate_up: 16 gates, then their 16 ups, in each tile
    const void *input_norm, *post_norm, *query_norm, *key_norm;
    void *keys, *values;
    const int32_t* block_tables;  // of the layer's group; null: those of the call
    const int64_t* block_ids;
    int64_t window;
};

struct Decoder {
    const Layer* layers;
    void* hidden;  // [tokens, hidden_size], in and out
    const void *cosines, *sines;
    const int32_t *query_starts, *positions;
    const uint8_t* ways;  // of attention
    const int32_t* block_tables;
    const int64_t *block_ids, *offsets;
    int64_t num_layers, num_tokens, num_rows, table_width;
    int64_t hidden_size, num_heads, num_kv_heads, dim, intermediate, rotary_dim, block_size;
    float epsilon, norm_epsilon, scaling;
    double* seconds;  // if not null, what each part took is added: products, attention, the rest
    Exchange* ranks;  // if not null, others have the rest of heads and columns
    int32_t activation, num_threads;
};

#ifdef SIGNALBOX_DOT

namespace {

inline vec activation(vec g, int32_t kind);

// Adds up where time goes, if anybody wants to know.
class Clock {
  public:
    enum Part { PRODUCTS, ATTENTION, REST };
    explicit Clock(double* seconds) : seconds_(seconds), last_(seconds ? omp_get_wtime() : 0) {}

    void add_to(Part part) {
        if (!seconds_) return;
        const double now = omp_get_wtime();
        seconds_[part] += now - last_;
        last_ = now;
    }

  private:
    double *seconds_, last_;
};

struct Scratch {
    std::vector<bf16> normed, qkv, attended, gated;
    std::vector<bf16> part;  // this rank's of what is added to the hidden state
    std::vector<float> partials;
    RoundedRows rounded;  // of what the next product takes, if its weights are whole numbers
};

class Forward {
  public:
    Forward(const Decoder& d, Scratch& s) : d_(d), s_(s), qkv_width_((d.num_heads + 2 * d.num_kv_heads) * d.dim) {
        int64_t partials = 0;
        for (int64_t i = 0; i < d.num_layers; i++) {
            const Attention a = attention(d.layers[i]);
            const Plan& plan = plans_.try_emplace(a.window, a, sizeof(bf16), d.num_threads).first->second;
            partials = std::max(partials, plan.size);
        }
        chunks_ = plan_chunks(attention(d.layers[0]));
        s.normed.resize(d.num_tokens * d.hidden_size);
        s.qkv.resize(d.num_tokens * qkv_width_);
        s.attended.resize(d.num_tokens * d.num_heads * d.dim);
        s.gated.resize(d.num_tokens * d.intermediate);
        s.partials.resize(partials);
        s.part.resize(d.ranks ? d.num_tokens * d.hidden_size : 0);
        s.rounded.resize(d.num_tokens, std::max({d.hidden_size, d.num_heads * d.dim, d.intermediate}));
    }

    // To be called by all members of the team; the first one keeps the time.
    void run(Team::Member& team, bool is_first) const {
        Clock clock(is_first ? d_.seconds : nullptr);
        for (int64_t i = 0; i < d_.num_layers && !have_ended(); i++) run_layer(d_.layers[i], team, clock);
    }

  private:
    const Decoder& d_;
    Scratch& s_;
    const int64_t qkv_width_;
    std::map<int64_t, Plan> plans_;  // by window
    std::vector<Chunk> chunks_;

    Attention attention(const Layer& l) const {
        const int64_t width = d_.num_heads * d_.dim;
        const int32_t* tables = l.block_tables ? l.block_tables : d_.block_tables;
        return {s_.qkv.data(), l.keys, l.values, s_.attended.data(), d_.query_starts, d_.positions, d_.ways, tables,
                nullptr, qkv_width_, width, d_.num_rows, d_.table_width, d_.num_heads, d_.num_kv_heads, d_.dim,
                d_.dim, d_.block_size, l.window, d_.dim, d_.scaling, 0.0f, 1, 1};
    }

    void run_layer(const Layer& l, Team::Member& team, Clock& clock) const {
        norm(l.input_norm, l.qkv, team);
        clock.add_to(Clock::REST);
        linear(l.qkv, s_.normed.data(), team, [&](int64_t r, int64_t t, vec low, vec high) {
            bf16* to = &s_.qkv[r * qkv_width_ + t * TILE];
            store(to, low);
            store(to + LANES, high);
        });
        clock.add_to(Clock::PRODUCTS);
        rotate(l, team);
        attend(l, team);
        clock.add_to(Clock::ATTENTION);
        round(l.out, s_.attended.data(), team);
        add(l.out, s_.attended.data(), team);
        if (have_ended()) return;
        clock.add_to(Clock::PRODUCTS);
        norm(l.post_norm, l.gate_up, team);
        clock.add_to(Clock::REST);
        linear(l.gate_up, s_.normed.data(), team, [&](int64_t r, int64_t t, vec gates, vec ups) {
            store(&s_.gated[r * d_.intermediate + t * LANES],
                          activation(rounded<bf16>(gates), d_.activation) * rounded<bf16>(ups));
        });
        round(l.down, s_.gated.data(), team);
        add(l.down, s_.gated.data(), team);
        clock.add_to(Clock::PRODUCTS);
    }

    // What a product gives, to the hidden state: by all ranks together where there are several.
    void add(const Packed& w, const bf16* x, Team::Member& team) const {
        bf16* hidden = (bf16*)d_.hidden;
        if (!d_.ranks) {
            linear(w, x, team, [&](int64_t r, int64_t t, vec low, vec high) {
                bf16* to = hidden + r * d_.hidden_size + t * TILE;
                store(to, rounded<bf16>(low) + load(to));
                store(to + LANES, rounded<bf16>(high) + load(to + LANES));
            });
            return;
        }
        linear(w, x, team, [&](int64_t r, int64_t t, vec low, vec high) {
            bf16* to = &s_.part[r * d_.hidden_size + t * TILE];
            store(to, low);
            store(to + LANES, high);
        });
        team.share(1, [&](int64_t) { sum_over_ranks(*d_.ranks, s_.part.data(), d_.num_tokens * d_.hidden_size); });
        if (have_ended()) return;
        team.share(d_.num_tokens, [&](int64_t r) {
            const bf16* from = &s_.part[r * d_.hidden_size];
            bf16* to = hidden + r * d_.hidden_size;
            for (int64_t i = 0; i < d_.hidden_size; i += LANES) store(to + i, load(from + i) + load(to + i));
        });
    }

    // The group of ranks is no more: what is computed from here on means nothing.
    bool have_ended() const { return d_.ranks && d_.ranks->has_ended; }

    void rotate(const Layer& l, Team::Member& team) const {
        const int64_t* block_ids = l.block_ids ? l.block_ids : d_.block_ids;
        const Rope rope{s_.qkv.data(), d_.cosines, d_.sines, l.query_norm, l.key_norm, l.keys, l.values,
                        block_ids, d_.offsets, d_.num_tokens, d_.num_heads, d_.num_kv_heads, d_.dim,
                        d_.rotary_dim, d_.block_size, d_.norm_epsilon, 0.0f, 1, 1};
        team.share(d_.num_tokens, [&](int64_t t) { rope_and_write_token<bf16>(rope, t); });
    }

    void norm(const void* weight, const Packed& next, Team::Member& team) const {
        team.share(d_.num_tokens, [&](int64_t t) {
            normalize((const bf16*)d_.hidden + t * d_.hidden_size, (const bf16*)weight, d_.hidden_size, d_.epsilon,
                      0.0f, true, &s_.normed[t * d_.hidden_size]);
            if (is_quantised(next)) s_.rounded.round(s_.normed.data(), t, d_.hidden_size);
        });
    }

    // To be called before `linear` with the same rows.
    void round(const Packed& w, const bf16* x, Team::Member& team) const {
        if (is_quantised(w)) team.share(d_.num_tokens, [&](int64_t t) { s_.rounded.round(x, t, w.inputs); });
    }

    template <class Take>
    void linear(const Packed& w, const bf16* x, Team::Member& team, Take&& take) const {
        const Rounded rows = s_.rounded.view(w.inputs);
        const Parts parts = parts_of(w, d_.num_tokens, d_.num_threads);
        team.share(parts.count(), [&](int64_t i) {
            parts.with(i, [&](int64_t tile, int64_t end, int64_t first, int64_t count) {
                auto take_row = [&](int64_t r, int64_t t, vec low, vec high) { take(first + r, t, low, high); };
                if (is_quantised(w)) multiply_all(w, tile, end, rows.from(first), count, take_row);
                else multiply_packed(w, tile, end, x + first * w.inputs, count, take_row);
            });
        });
    }

    void attend(const Layer& l, Team::Member& team) const {
        const Attention a = attention(l);
        const Plan& plan = plans_.at(a.window);
        const int64_t tasks = plan.tasks.size();
        team.share(tasks + chunks_.size(), [&](int64_t i) {
            if (i < tasks) attend_task<bf16>(a, plan.tasks[i], s_.partials.data());
            else attend_chunk(a, chunks_[i - tasks]);
        });
        if (plan.has_joins)
            team.share(d_.num_rows, [&](int64_t r) { join_row<bf16>(a, plan, r, s_.partials.data()); });
    }
};

inline void decode(const Decoder& d) {
    static thread_local Scratch scratch;
    const Forward forward(d, scratch);
    Team team;
#pragma omp parallel num_threads(d.num_threads) if (d.num_threads > 1)
    {
        Team::Member member(team);
        forward.run(member, omp_get_thread_num() == 0);
    }
}

}  // namespace

#endif
