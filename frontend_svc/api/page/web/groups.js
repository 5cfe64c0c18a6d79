// What a worker has beside its map: blocks of layers that look back so far and no farther, and checkpoints of recurrent
// states. Where in its pool one of these lies means nothing, so a bar of shares tells it.
import { make, setText } from "./dom.js";
import { count } from "./format.js";

export function showGroups(parent, worker) {
  const rows = [...worker.groups.map(ofGroup)];
  if (worker.checkpoints) rows.push(ofCheckpoints(worker.checkpoints));
  while (parent.children.length > 2 * rows.length) parent.lastChild.remove();
  while (parent.children.length < 2 * rows.length) {
    parent.append(make("p", { class: "group" }), make("div", { class: "shares", "aria-hidden": "true" }, ...shares()));
  }
  rows.forEach((row, place) => showRow(parent.children[2 * place], parent.children[2 * place + 1], row));
}

const shares = () => [make("i", { class: "held" }), make("i", { class: "cached" })];

function ofGroup(group) {
  return {
    name: `${group.kind} of ${count(group.reach)}`,
    all: group.num_blocks,
    free: group.num_free_blocks,
    cached: group.num_cached_blocks,
    more: hostOf(group.num_used_host_blocks, group.num_host_blocks),
  };
}

const hostOf = (used, all) => (all ? `, host ${count(used)} of ${count(all)}` : "");

function ofCheckpoints(kept) {
  return {
    name: `states at each ${count(kept.boundary)}`,
    all: kept.num_checkpoints,
    free: kept.num_free_checkpoints,
    cached: kept.num_cached_checkpoints,
    more: `${hostOf(kept.num_used_host_checkpoints, kept.num_host_checkpoints)} · made ${count(kept.num_made)}, used ${count(kept.num_used)}, evicted ${count(kept.num_evicted)}`,
  };
}

function showRow(line, bar, { name, all, free, cached, more = "" }) {
  const held = all - free - cached;
  setText(line, `${name}: ${count(held)} held, ${count(cached)} cached, ${count(free)} free of ${count(all)}${more}`);
  [held, cached].forEach((part, place) => (bar.children[place].style.width = `${(100 * part) / all}%`));
}
