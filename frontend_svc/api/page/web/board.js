// The live board: keeps the stream of snapshots while the page can be seen, and shows the newest one.
import { watchBoard } from "./api.js";
import { showWorkers } from "./block_map.js";
import { Charts } from "./charts.js";
import { setText } from "./dom.js";
import { History } from "./history.js";
import { showSafeMode } from "./safe_mode.js";
import { showQueues, showRequests } from "./tables.js";
import { showTiles } from "./tiles.js";

const RETRY_MS = 2000;
const link = document.getElementById("link");

// Returns what draws the board again, for when colours change.
export function startBoard() {
  const history = new History();
  const charts = new Charts(document.getElementById("charts"));
  let newest = null;
  let watching = null; // an AbortController

  const draw = () => {
    if (!newest) return;
    showSafeMode(newest.safe_mode);
    showTiles(newest, history.last);
    charts.draw(history.points);
    showWorkers(newest.workers);
    showQueues(newest);
    showRequests(newest);
  };

  const take = ({ event, data }) => {
    const told = JSON.parse(data);
    if (event === "away") {
      say("away", told.message);
      return;
    }
    const count = told.workers.filter((worker) => worker.attached).length;
    say("live", `live, ${count} ${count === 1 ? "worker" : "workers"}`);
    newest = told;
    history.add(told);
    draw();
  };

  const watch = async () => {
    if (watching || document.hidden) return;
    const mine = (watching = new AbortController());
    let again = true;
    try {
      for await (const event of watchBoard(mine.signal)) take(event);
      say("away", "the server ended the board");
    } catch (error) {
      if (error.name !== "AbortError") say("away", error.message);
      again = !error.needsKey; // asked again when the key changes
    } finally {
      if (watching === mine) watching = null;
    }
    if (again) setTimeout(watch, RETRY_MS);
  };

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) watch();
    else {
      watching?.abort(); // nobody looks: nothing is asked for
      watching = null;
    }
  });
  addEventListener("resize", draw);
  document.getElementById("key").addEventListener("change", () => {
    watching?.abort();
    watching = null;
    watch();
  });
  watch();
  return draw;
}

function say(state, text) {
  link.dataset.state = state;
  setText(link, text);
}
