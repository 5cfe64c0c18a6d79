// The playground: what the fields say becomes a request, and its stream becomes text.
import { complete, listModels } from "./api.js";
import { make, setText } from "./dom.js";

const at = (id) => document.getElementById(id);
const NUMBERS = ["max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "repetition_penalty", "frequency_penalty", "presence_penalty"];
const RETRY_MS = 2000;
let running = null; // an AbortController
let turns = []; // of the chat so far

export function startPlayground() {
  fillModels();
  at("key").addEventListener("change", fillModels);
  at("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  at("stop").addEventListener("click", () => running?.abort());
  at("clear").addEventListener("click", clear);
  for (const choice of document.getElementsByName("mode")) choice.addEventListener("change", showMode);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") running?.abort();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && at("playground").contains(event.target)) {
      at("ask").requestSubmit();
    }
  });
  showMode();
}

async function fillModels() {
  try {
    const models = await listModels();
    at("model").replaceChildren(...models.map((name) => make("option", { value: name }, name)));
    complain("");
    if (!models.length) setTimeout(fillModels, RETRY_MS); // no worker yet
  } catch (error) {
    complain(error.message);
  }
}

const isChat = () => document.querySelector("[name=mode]:checked").value === "chat";

function showMode() {
  at("system-field").hidden = !isChat();
  setText(at("prompt-name"), isChat() ? "Message" : "Prompt");
  clear();
}

function clear() {
  running?.abort();
  turns = [];
  at("output").replaceChildren();
  setText(at("figures"), "");
  complain("");
}

function complain(text) {
  setText(at("problem"), text);
  at("problem").hidden = !text;
}

async function run() {
  if (running) return;
  complain("");
  let sampling;
  try {
    sampling = readSampling();
  } catch (error) {
    complain(error.message);
    return;
  }
  running = new AbortController();
  at("run").disabled = true;
  at("stop").disabled = false;
  try {
    await (isChat() ? chat(sampling, running.signal) : completion(sampling, running.signal));
  } catch (error) {
    if (error.name !== "AbortError") complain(error.message);
  } finally {
    running = null;
    at("run").disabled = false;
    at("stop").disabled = true;
  }
}

// Fields that are empty are left to the server.
function readSampling() {
  const sampling = {};
  if (at("model").value) sampling.model = at("model").value;
  for (const name of NUMBERS) {
    if (at(name).value !== "") sampling[name] = Number(at(name).value);
  }
  const stop = at("stop_strings").value.split("\n").filter(Boolean).map((line) => line.replaceAll("\\n", "\n"));
  if (stop.length) sampling.stop = stop;
  if (at("schema").value.trim()) {
    sampling.response_format = { type: "json_schema", json_schema: { name: "output", schema: readSchema(), strict: true } };
  }
  return sampling;
}

function readSchema() {
  try {
    return JSON.parse(at("schema").value);
  } catch (error) {
    throw new Error(`The JSON schema is not JSON: ${error.message}`);
  }
}

async function completion(sampling, signal) {
  const prompt = at("prompt").value;
  const text = make("span");
  at("output").replaceChildren(make("span", { class: "given" }, prompt), text);
  await show(complete("/v1/completions", { ...sampling, prompt }, signal), text, (choice) => choice.text);
}

async function chat(sampling, signal) {
  const asked = { role: "user", content: at("prompt").value };
  const system = at("system").value.trim();
  const messages = [...(system ? [{ role: "system", content: system }] : []), ...turns, asked];
  addTurn("user", asked.content);
  const text = addTurn("assistant", "");
  const chunks = complete("/v1/chat/completions", { ...sampling, messages }, signal);
  at("prompt").value = "";
  try {
    await show(chunks, text, (choice) => choice.delta?.content);
  } finally {
    if (text.textContent) turns.push(asked, { role: "assistant", content: text.textContent });
    else at("prompt").value ||= asked.content;
  }
}

function addTurn(role, content) {
  const text = make("span", {}, content);
  at("output").append(make("div", { class: "turn" }, make("b", {}, role), text));
  return text;
}

// Appends the stream to `element`, and tells what it took.
async function show(chunks, element, textOf) {
  const output = at("output");
  const started = performance.now();
  let first = null;
  let usage = null;
  let reason = "stopped here";
  try {
    for await (const chunk of chunks) {
      usage = chunk.usage ?? usage;
      const [choice] = chunk.choices;
      if (!choice) continue;
      reason = choice.finish_reason ?? reason;
      const text = textOf(choice);
      if (!text) continue;
      first ??= performance.now();
      const follows = output.scrollHeight - output.scrollTop - output.clientHeight < 40;
      element.append(text);
      if (follows) output.scrollTop = output.scrollHeight;
    }
  } finally {
    setText(at("figures"), tell(started, first, usage, reason));
  }
}

function tell(started, first, usage, reason) {
  const parts = [];
  if (usage) parts.push(`${usage.prompt_tokens} + ${usage.completion_tokens} tokens`);
  if (first !== null) {
    parts.push(`first after ${Math.round(first - started)} ms`);
    const seconds = (performance.now() - first) / 1000;
    if (usage?.completion_tokens > 1) parts.push(`${Math.round((usage.completion_tokens - 1) / seconds)} tokens/s`);
  }
  return [...parts, `end: ${reason}`].join(" · ");
}
