// What two minutes of snapshots make: rates from counters, and the points of the charts.

const KEPT_MS = 120_000;
const RATE_MS = 2_000; // rates are over this time
const COUNTERS = ["num_output_tokens", "num_prefill_tokens", "step_us", "model_us"];

export class History {
  constructor() {
    this.points = [];
    this.epoch = null;
    this.workers = new Map();
    this.totals = Object.fromEntries(COUNTERS.map((name) => [name, 0]));
  }

  get last() {
    return this.points.at(-1);
  }

  add(board) {
    if (board.scheduler_epoch !== this.epoch) {
      this.points = [];
      this.workers.clear();
      this.epoch = board.scheduler_epoch;
    }
    for (const worker of board.workers) this.#count(worker);
    const from = this.points.findLast((point) => board.at_ms - point.at_ms >= RATE_MS) ?? this.points[0];
    const seconds = from ? (board.at_ms - from.at_ms) / 1000 : 0;
    const since = (name) => (from ? this.totals[name] - from.totals[name] : 0);
    const rate = (name) => (seconds > 0 ? since(name) / seconds : null);
    const times = (name, key) => (board.times[name].num_samples ? board.times[name][key] : null);
    this.points.push({
      at_ms: board.at_ms,
      totals: { ...this.totals },
      outputRate: rate("num_output_tokens"),
      prefillRate: rate("num_prefill_tokens"),
      modelShare: since("step_us") ? since("model_us") / since("step_us") : null,
      running: sum(board.workers, "num_running"),
      waiting: board.num_waiting,
      gapP50: times("inter_token", "p50_ms"),
      gapP99: times("inter_token", "p99_ms"),
    });
    while (board.at_ms - this.points[0].at_ms > KEPT_MS) this.points.shift();
  }

  // Counters begin anew when a worker attaches; times are told per snapshot.
  #count(worker) {
    const before = this.workers.get(worker.worker_id);
    for (const name of ["num_output_tokens", "num_prefill_tokens"]) {
      if (before) this.totals[name] += Math.max(worker[name] - before[name], 0);
    }
    for (const name of ["step_us", "model_us"]) this.totals[name] += worker[name];
    this.workers.set(worker.worker_id, worker);
  }
}

export function sum(items, name) {
  return items.reduce((total, item) => total + item[name], 0);
}
