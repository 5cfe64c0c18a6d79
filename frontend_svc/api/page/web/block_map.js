// The KV blocks of each worker as a map: one cell per block, or per some blocks where there are very many.
import { color, make, setText } from "./dom.js";
import { count, share } from "./format.js";
import { showGroups } from "./groups.js";

const FULL = 15;
const MAX_HEIGHT = 170;
const SIZES = [14, 11, 9, 7, 6, 5, 4, 3]; // of a cell and its gap, in CSS pixels
const HOST_HEIGHT = 8;
const parent = document.getElementById("workers");
const cards = new Map();

export function showWorkers(workers) {
  for (const [name, card] of cards) {
    if (!workers.some((worker) => worker.worker_id === name)) {
      card.box.remove();
      cards.delete(name);
    }
  }
  workers.forEach((worker, place) => {
    if (!cards.has(worker.worker_id)) cards.set(worker.worker_id, makeCard(worker));
    const card = cards.get(worker.worker_id);
    if (parent.children[place] !== card.box) parent.insertBefore(card.box, parent.children[place] ?? null);
    showWorker(card, worker);
  });
}

function makeCard(worker) {
  const card = { state: make("span"), line: make("p"), canvas: make("canvas", { role: "img" }), groups: make("div") };
  const head = make("h4", {}, worker.worker_id, card.state);
  card.box = make("article", { class: "worker" }, head, card.line, card.canvas, card.groups);
  return card;
}

function showWorker(card, worker) {
  const held = worker.num_blocks - worker.num_free_blocks - worker.num_cached_blocks;
  const trouble = troubleOf(worker);
  const doing = trouble || (worker.draining ? "draining" : worker.model);
  const role = worker.role === "both" ? doing : `${doing}, ${worker.role}`;
  const state = worker.num_ranks > 1 ? `${role}, ${worker.num_ranks} ranks` : role;
  card.box.classList.toggle("gone", !worker.attached);
  card.state.classList.toggle("trouble", Boolean(trouble));
  setText(card.state, state);
  const parts = [`${count(held)} held`, `${count(worker.num_cached_blocks)} cached`, `${count(worker.num_free_blocks)} free of ${count(worker.num_blocks)}`];
  if (worker.num_host_blocks) parts.push(`host ${count(worker.num_used_host_blocks)} of ${count(worker.num_host_blocks)}`);
  if (worker.disk) parts.push(`disk ${count(worker.disk.num_blocks)}${worker.disk.is_off ? " (off)" : ""}`);
  const hits = share(worker.num_prefix_hit_tokens, worker.num_prefix_query_tokens);
  setText(card.line, `${parts.join(", ")} · ${count(worker.num_running)} running · hits ${hits}`);
  card.canvas.setAttribute("aria-label", `KV blocks: ${parts.join(", ")}`);
  drawMap(card.canvas, worker);
  showGroups(card.groups, worker);
}

// In a word what is wrong with a worker, as `signalbox top` says it; empty: nothing.
function troubleOf(worker) {
  if (!worker.attached) return "lost";
  if (worker.health !== "good") return worker.health;
  return worker.num_unheard_by ? "unreachable" : "";
}

function drawMap(canvas, worker) {
  const cells = Uint8Array.from(atob(worker.cells), (letter) => letter.charCodeAt(0));
  const width = canvas.clientWidth;
  const size = SIZES.find((one) => Math.ceil(cells.length / Math.floor(width / one)) * one <= MAX_HEIGHT) ?? SIZES.at(-1);
  const columns = Math.max(Math.floor(width / size), 1);
  const mapHeight = Math.ceil(cells.length / columns) * size;
  const height = mapHeight + (worker.num_host_blocks ? HOST_HEIGHT + 4 : 0);
  const pen = prepare(canvas, width, height);
  const gap = size > 4 ? 1 : 0;
  const rectangle = (index) => [(index % columns) * size, Math.floor(index / columns) * size, size - gap, size - gap];
  for (const [name, levelOf] of [["--free", () => FULL], ["--cached", (cell) => cell & FULL], ["--held", (cell) => cell >> 4]]) {
    pen.fillStyle = color(name);
    cells.forEach((cell, index) => {
      const level = levelOf(cell);
      if (!level) return;
      pen.globalAlpha = level / FULL;
      pen.fillRect(...rectangle(index));
    });
  }
  pen.globalAlpha = 1;
  if (worker.num_host_blocks) drawHost(pen, worker, columns * size - gap, mapHeight + 4);
}

// The host tier is told by its count: where in it a block lies means nothing.
function drawHost(pen, worker, width, top) {
  pen.fillStyle = color("--free");
  pen.fillRect(0, top, width, HOST_HEIGHT);
  pen.fillStyle = color("--host");
  pen.fillRect(0, top, (width * worker.num_used_host_blocks) / worker.num_host_blocks, HOST_HEIGHT);
}

function prepare(canvas, width, height) {
  const scale = devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== wide) canvas.width = wide;
  if (canvas.height !== high) canvas.height = high;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  return pen;
}
