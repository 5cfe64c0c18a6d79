// Puts the page together.
import { startBoard } from "./board.js";
import { forgetColors } from "./dom.js";
import { startPlayground } from "./playground.js";

const THEMES = ["auto", "light", "dark"];
const button = document.getElementById("theme");

function showTheme(theme, redraw) {
  button.textContent = theme;
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  forgetColors();
  redraw();
}

function startThemes(redraw) {
  let theme = localStorage.getItem("theme");
  if (!THEMES.includes(theme)) theme = "auto";
  showTheme(theme, redraw);
  button.addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    localStorage.setItem("theme", theme);
    showTheme(theme, redraw);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => showTheme(theme, redraw));
}

startThemes(startBoard());
startPlayground();
