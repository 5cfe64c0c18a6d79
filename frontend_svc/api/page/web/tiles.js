// The figures at the top of the board.
import { make, setText } from "./dom.js";
import { compact, count, ms, share } from "./format.js";
import { sum } from "./history.js";

const tiles = document.getElementById("tiles");
const shown = new Map();

export function showTiles(board, point) {
  const { workers, times } = board;
  const all = (name) => sum(workers, name);
  const latency = (found) => (found.num_samples ? [ms(found.p50_ms), `p99 ${ms(found.p99_ms)}`] : ["–", ""]);
  show("running", "Running", count(all("num_running")), `${count(all("num_preempted"))} preempted now`);
  show("waiting", "Waiting", count(board.num_waiting), `${count(board.num_frontends)} ${board.num_frontends === 1 ? "frontend" : "frontends"}`);
  show("output", "Output tokens/s", count(point.outputRate), `${count(all("num_output_tokens"))} in all`);
  show("prefill", "Prompt tokens/s", count(point.prefillRate), `${compact(all("num_prefill_tokens"))} in all`);
  show("first-token", "First token p50", ...latency(times.first_token));
  show("inter-token", "Inter-token p50", ...latency(times.inter_token));
  show("prefix-hits", "Prefix-cache hits", share(all("num_prefix_hit_tokens"), all("num_prefix_query_tokens")), `${compact(all("num_prefix_hit_tokens"))} tokens`);
  show("preemptions", "Preemptions", count(all("num_preemptions")), "since attached");
  show("steps", "Steps in flight", count(all("num_inflight_steps")), `${compact(all("num_steps"))} sent`);
  show("model", "Model's share of steps", point.modelShare === null ? "–" : share(point.modelShare, 1), "last 2 s");
}

function show(name, head, value, more) {
  if (!shown.has(name)) {
    const [first, second] = [make("dd", { id: `tile-${name}` }), make("dd", { class: "more", id: `tile-${name}-more` })];
    tiles.append(make("div", {}, make("dt", {}, head), first, second));
    shown.set(name, [first, second]);
  }
  const [first, second] = shown.get(name);
  setText(first, value);
  setText(second, more);
}
