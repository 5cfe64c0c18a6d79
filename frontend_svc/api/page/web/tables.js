// Queue and requests as tables; rows are kept and changed in place.
import { make, setText } from "./dom.js";
import { count, ms } from "./format.js";
import { sum } from "./history.js";

const queues = document.querySelector("#queues tbody");
const requests = document.querySelector("#requests tbody");
const shown = document.getElementById("shown");

export function showQueues(board) {
  const rows = board.queues.map((queue) => [String(queue.priority), queue.tenant || "–", count(queue.num_waiting), ms(queue.oldest_ms), bar(queue.num_waiting, board.num_waiting)]);
  const others = board.num_waiting - sum(board.queues, "num_waiting");
  if (others > 0) rows.push(["", "not counted by class", count(others), "", bar(others, board.num_waiting)]);
  fill(queues, rows, "nothing waits", (row) => {
    row.children[2].className = row.children[3].className = "num";
  });
}

export function showRequests(board) {
  const held = sum(board.workers, "num_running") + sum(board.workers, "num_preempted");
  setText(shown, board.requests.length < held ? `${board.requests.length} of ${count(held)}` : "");
  const one = board.workers.length === 1;
  const rows = board.requests.map((request) => [
    one ? String(request.slot) : `${request.worker_id} ${request.slot}`,
    request.request_id,
    String(request.priority),
    request.tenant || "–",
    request.phase,
    progressOf(request),
    `${count(request.num_prompt_tokens)} + ${count(request.num_output_tokens)}`,
    count(request.num_blocks),
    count(request.num_cached_tokens),
    count(request.num_preemptions),
    ms(request.age_ms),
  ]);
  fill(requests, rows, "nothing runs", (row, index) => {
    row.dataset.phase = board.requests[index].phase;
    row.children[1].className = "id";
    row.children[4].className = "phase";
    for (const cell of [...row.children].slice(6)) cell.className = "num";
  });
}

// Of the prompt while it is computed, of the output after that.
function progressOf(request) {
  return request.num_output_tokens ? bar(request.num_output_tokens, request.max_output_tokens) : bar(request.num_computed_tokens, request.num_prompt_tokens);
}

const bar = (value, max) => ({ value, max: Math.max(max, 1) });

// Cells are text, or {value, max} for a bar.
function fill(body, rows, empty, dress) {
  if (!rows.length) {
    body.replaceChildren(make("tr", {}, make("td", { class: "none", colspan: "11" }, empty)));
    return;
  }
  if (body.querySelector(".none")) body.replaceChildren();
  while (body.children.length > rows.length) body.lastChild.remove();
  while (body.children.length < rows.length) body.append(make("tr", {}, ...rows[0].map(() => make("td"))));
  rows.forEach((cells, index) => {
    const row = body.children[index];
    cells.forEach((cell, column) => setCell(row.children[column], cell));
    dress(row, index);
  });
}

function setCell(element, cell) {
  if (typeof cell === "string") {
    setText(element, cell);
    return;
  }
  let progress = element.firstChild;
  if (progress?.nodeName !== "PROGRESS") {
    progress = make("progress");
    element.replaceChildren(progress);
  }
  progress.max = cell.max;
  progress.value = cell.value;
}
