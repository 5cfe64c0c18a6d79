// Three charts of up to two minutes, drawn by uPlot.
import { color, make, setText } from "./dom.js";
import { compact } from "./format.js";

const HEIGHT = 130;
const CHARTS = [
  { name: "Tokens/s", lines: [["output", "outputRate", "--held"], ["prompt", "prefillRate", "--good"]] },
  { name: "Requests", lines: [["running", "running", "--held"], ["waiting", "waiting", "--cached"]] },
  { name: "Inter-token, ms", lines: [["p50", "gapP50", "--held"], ["p99", "gapP99", "--bad"]] },
];

export class Charts {
  constructor(parent) {
    this.charts = CHARTS.map((chart) => new Chart(parent, chart));
  }

  draw(points) {
    for (const chart of this.charts) chart.draw(points);
  }
}

class Chart {
  constructor(parent, { name, lines }) {
    this.lines = lines;
    this.box = make("div", { role: "img", "aria-label": name });
    this.labels = lines.map(([label]) => make("span", {}, label));
    const names = this.labels.map((text, index) => {
      const item = make("span", { class: "swatch" }, text);
      item.style.color = `var(${lines[index][2]})`;
      return item;
    });
    this.figure = make("figure", {}, make("figcaption", {}, make("b", {}, name), ...names), this.box);
    parent.append(this.figure);
  }

  draw(points) {
    const now = points.at(-1).at_ms;
    const data = [points.map((point) => (point.at_ms - now) / 1000), ...this.lines.map(([, key]) => points.map((point) => point[key]))];
    const width = Math.floor(this.figure.clientWidth);
    this.plot ??= new uPlot(this.#options(width), data, this.box);
    if (this.plot.width !== width) this.plot.setSize({ width, height: HEIGHT });
    this.plot.setData(data);
    this.lines.forEach(([label], index) => {
      const value = data[index + 1].at(-1);
      setText(this.labels[index], value === null ? label : `${label} ${compact(value)}`);
    });
  }

  #options(width) {
    const axis = { stroke: () => color("--quiet"), grid: { stroke: () => color("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    return {
      width,
      height: HEIGHT,
      padding: [8, 14, 0, 0],
      legend: { show: false },
      cursor: { show: false },
      scales: { x: { time: false, range: (_, min) => [Math.min(min ?? 0, -30), 0] }, y: { range: (_, __, max) => [0, Math.max(max * 1.1, 1)] } },
      axes: [
        { ...axis, size: 22, space: 60, values: (_, splits) => splits.map((seconds) => (seconds ? `${seconds} s` : "now")) },
        { ...axis, size: 42, space: 30, values: (_, splits) => splits.map(compact) },
      ],
      series: [{}, ...this.lines.map(([label, , name]) => ({ label, stroke: () => color(name), width: 1.5, points: { show: false } }))],
    };
  }
}
