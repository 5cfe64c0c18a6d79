// The playground: what the fields say becomes a request, and its stream becomes text.
import { complete, listModels } from "./api.js";
import { make, setText } from "./dom.js";
import { Answer, showTurn } from "./turns.js";

const at = (id) => document.getElementById(id);
const NUMBERS = ["max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "repetition_penalty", "frequency_penalty", "presence_penalty"];
const RETRY_MS = 2000;
let running = null; // an AbortController
let models = [];
let turns = []; // messages of the chat so far
let asking = null; // the last answer, while its calls wait for results

export function startPlayground() {
  fillModels();
  at("key").addEventListener("change", fillModels);
  at("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  at("stop").addEventListener("click", () => running?.abort());
  at("clear").addEventListener("click", clear);
  at("results").addEventListener("click", () => run(true));
  at("model").addEventListener("change", showDefaults);
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
    models = await listModels();
    at("model").replaceChildren(...models.map(({ id }) => make("option", { value: id }, id)));
    showDefaults();
    complain("");
    if (!models.length) setTimeout(fillModels, RETRY_MS); // no worker yet
  } catch (error) {
    complain(error.message);
  }
}

// What the model does where a field is empty, and how its thinking can be switched.
function showDefaults() {
  const model = models.find(({ id }) => id === at("model").value);
  if (!model) return;
  const defaults = model.sampling_defaults ?? {};
  for (const name of NUMBERS) {
    const field = at(name);
    field.dataset.none ??= field.placeholder;
    field.placeholder = defaults[name] ?? field.dataset.none;
  }
  if (defaults.temperature !== undefined && at("temperature").value === at("temperature").defaultValue) at("temperature").value = "";
  const ways = waysToThink(model.chat?.thinking ?? []);
  at("thinking").replaceChildren(...ways.map(([value, told]) => make("option", { value }, told)));
  at("thinking").disabled = ways.length === 1;
}

function waysToThink(switches) {
  const ways = [["", "default"]];
  if (switches.includes("reasoning_effort")) ways.push(["low", "low"], ["medium", "medium"], ["high", "high"]);
  else if (switches.length) ways.push(["high", "on"], ["none", "off"]);
  return ways;
}

const isChat = () => document.querySelector("[name=mode]:checked").value === "chat";

function showMode() {
  at("system-field").hidden = at("tools-field").hidden = !isChat();
  setText(at("prompt-name"), isChat() ? "Message" : "Prompt");
  clear();
}

function clear() {
  running?.abort();
  turns = [];
  wait(null);
  at("output").replaceChildren();
  setText(at("figures"), "");
  complain("");
}

function complain(text) {
  setText(at("problem"), text);
  at("problem").hidden = !text;
}

// Whether results are wanted before the next message.
function wait(answer) {
  asking = answer?.calls.length ? answer : null;
  at("results").hidden = !asking;
}

async function run(withResults = false) {
  if (running) return;
  complain("");
  let sampling;
  try {
    sampling = isChat() ? { ...readSampling(), ...readTools() } : readSampling();
  } catch (error) {
    complain(error.message);
    return;
  }
  running = new AbortController();
  at("run").disabled = true;
  at("stop").disabled = false;
  try {
    await (isChat() ? chat(sampling, withResults, running.signal) : completion(sampling, running.signal));
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
    sampling.response_format = { type: "json_schema", json_schema: { name: "output", schema: readJson("schema", "The JSON schema is"), strict: true } };
  }
  return sampling;
}

// Functions may be told with or without the envelope that the API has around them.
function readTools() {
  const asked = {};
  if (at("thinking").value) asked.reasoning_effort = at("thinking").value;
  if (!at("tools").value.trim()) return asked;
  const told = readJson("tools", "The functions are");
  asked.tools = [told].flat().map((tool) => (tool?.function ? tool : { type: "function", function: tool }));
  asked.tool_choice = at("tool_choice").value;
  return asked;
}

function readJson(name, told) {
  try {
    return JSON.parse(at(name).value);
  } catch (error) {
    throw new Error(`${told} not JSON: ${error.message}`);
  }
}

async function completion(sampling, signal) {
  const prompt = at("prompt").value;
  const text = make("span");
  at("output").replaceChildren(make("span", { class: "given" }, prompt), text);
  await show(complete("/v1/completions", { ...sampling, prompt }, signal), (choice) => {
    text.append(choice.text);
    return choice.text;
  });
}

// With results, or with a message: calls that wait have empty results then, as most templates want one for each.
async function chat(sampling, withResults, signal) {
  const system = at("system").value.trim();
  const asked = at("prompt").value;
  const answered = asking;
  const given = [...(answered?.results ?? []), ...(withResults ? [] : [{ role: "user", content: asked }])];
  const messages = [...(system ? [{ role: "system", content: system }] : []), ...turns, ...given];
  const question = withResults ? null : showTurn(at("output"), "user", asked);
  const answer = new Answer(at("output"));
  at("output").scrollTop = at("output").scrollHeight;
  if (!withResults) at("prompt").value = "";
  wait(null);
  try {
    await show(complete("/v1/chat/completions", { ...sampling, messages }, signal), (choice) => answer.add(choice.delta ?? {}));
  } finally {
    answer.end();
    if (answer.isEmpty) {
      question?.remove();
      answer.turn.remove();
      at("prompt").value ||= withResults ? "" : asked;
      wait(answered);
    } else {
      answered?.close();
      turns.push(...given, answer.message);
      if (answer.calls.length) answer.turn.scrollIntoView({ block: "nearest" });
      wait(answer);
    }
  }
}

// Hands each choice to `add`, which says whether there was anything to show, and tells what the stream took.
async function show(chunks, add) {
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
      const follows = output.scrollHeight - output.scrollTop - output.clientHeight < 40;
      if (!add(choice)) continue;
      first ??= performance.now();
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
