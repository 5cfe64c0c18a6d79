// A line above the figures while classes are suspended.
import { setText } from "./dom.js";
import { count } from "./format.js";

const line = document.getElementById("safe-mode");

export function showSafeMode({ operator_level, budget_level, num_waiting, num_paused }) {
  const asked = [
    ["an operator", operator_level],
    ["the error budget", budget_level],
  ].filter(([, level]) => level !== null);
  line.hidden = !asked.length;
  if (line.hidden) return;
  const level = Math.min(...asked.map(([, level]) => level));
  const whom = asked.map(([name]) => name).join(" and ");
  setText(line, `Safe mode: priority numbers above ${level} are suspended by ${whom}; ${count(num_waiting)} waiting, ${count(num_paused)} paused.`);
}
