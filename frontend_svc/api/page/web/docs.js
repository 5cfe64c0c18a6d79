// The API's description, read from /openapi.json: each operation with its fields and an example to copy.

import { make } from "./dom.js";

const REF = "#/components/schemas/";
const MAX_ALTERNATIVES = 12;
let schemas = {};

const resolve = (schema) => (schema.$ref ? schemas[schema.$ref.slice(REF.length)] : schema);

// A type in one line; objects of ours by their name.
function typeOf(schema) {
  if (schema.$ref) return schema.$ref.slice(REF.length).split("__").pop();
  const parts = schema.anyOf || schema.oneOf;
  if (parts) {
    const names = [...new Set(parts.map(typeOf))].filter((name) => name !== "null");
    return names.slice(0, MAX_ALTERNATIVES).join(" | ");
  }
  if (schema.enum) return schema.enum.filter((value) => value !== null).map((value) => JSON.stringify(value)).join(" | ") || "null";
  if ("const" in schema) return JSON.stringify(schema.const);
  if (schema.type === "array") return `[${schema.items ? typeOf(schema.items) : "any"}]`;
  return [schema.type || "any"].flat().join(" | ") + rangeOf(schema);
}

function rangeOf(schema) {
  const low = schema.minimum ?? schema.exclusiveMinimum;
  if (low === undefined) return "";
  const high = schema.maximum === undefined ? "" : ` to ${schema.maximum}`;
  return ` (${schema.exclusiveMinimum === undefined ? "from" : "above"} ${low}${high})`;
}

// The objects that a schema names, for the reader who wants to go on.
function namesIn(schema, found = new Set()) {
  if (schema.$ref) found.add(schema.$ref.slice(REF.length));
  for (const part of [...(schema.anyOf || []), ...(schema.oneOf || []), ...(schema.items ? [schema.items] : [])]) namesIn(part, found);
  return found;
}

function fieldsOf(schema, seen) {
  const properties = Object.entries(schema.properties || {});
  const needed = new Set(schema.required || []);
  const rows = properties.map(([name, field]) =>
    make("tr", {}, make("td", { class: needed.has(name) ? "needed" : undefined }, name), make("td", {}, typeOf(field)), make("td", {}, field.description || "")));
  const table = make("table", {}, make("thead", {}, make("tr", {}, ...["field", "type", "what it is"].map((text) => make("th", { scope: "col" }, text)))), make("tbody", {}, ...rows));
  const names = new Set(properties.flatMap(([, field]) => [...namesIn(field)]));
  const inner = [...names].filter((name) => !seen.has(name)).map((name) => lazily(name.split("__").pop(), () => objectOf(name, new Set([...seen, name]))));
  return make("div", { class: "inner" }, ...(rows.length ? [table] : []), ...inner);
}

function objectOf(name, seen) {
  const schema = schemas[name];
  return make("div", {}, make("p", { class: "quiet" }, schema.description || ""), fieldsOf(schema, seen));
}

// A part whose inside is made when it is opened: schemas refer to each other without end.
function lazily(title, fill) {
  const part = make("details", {}, make("summary", {}, title));
  part.addEventListener("toggle", () => { if (part.open && part.children.length === 1) part.append(fill()); });
  return part;
}

function exampleOf(path, method, content) {
  const body = JSON.stringify(content.example);
  return make("pre", {}, `curl ${location.origin}${path} -X ${method.toUpperCase()} \\\n  -H 'Content-Type: application/json' \\\n  -d '${body.replaceAll("'", "'\\''")}'`);
}

function operationOf(path, method, operation) {
  const title = make("summary", {}, make("span", { class: "method" }, method), make("code", {}, path), ` ${operation.summary}`);
  const part = make("details", {}, title);
  part.addEventListener("toggle", () => { if (part.open && part.children.length === 1) part.append(insideOf(path, method, operation)); });
  const [media, content] = Object.entries(operation.requestBody?.content || {})[0] || [];
  const fields = content ? Object.keys(resolve(content.schema).properties || {}) : [];
  part.dataset.words = [path, operation.summary, media || "", ...fields].join(" ").toLowerCase();
  return part;
}

function insideOf(path, method, operation) {
  const inside = make("div", { class: "inner" });
  const [media, content] = Object.entries(operation.requestBody?.content || {})[0] || [];
  if (content) {
    const schema = resolve(content.schema);
    inside.append(make("p", { class: "quiet" }, `${media}: ${schema.description || ""}`));
    if (content.example) inside.append(exampleOf(path, method, content));
    inside.append(fieldsOf(schema, new Set()));
  }
  if (operation.parameters) {
    const rows = operation.parameters.map((each) => make("tr", {}, make("td", {}, each.name), make("td", {}, each.in), make("td", {}, each.description || "")));
    inside.append(make("table", {}, make("tbody", {}, ...rows)));
  }
  inside.append(make("p", { class: "quiet" }, `answers ${Object.keys(operation.responses["200"].content).join(", ")}`));
  return inside;
}

function show(document_) {
  schemas = document_.components.schemas;
  document.getElementById("about").textContent = document_.info.description;
  const groups = new Map();
  for (const [path, operations] of Object.entries(document_.paths)) {
    for (const [method, operation] of Object.entries(operations)) {
      const tag = operation.tags[0];
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push(operationOf(path, method, operation));
    }
  }
  const sections = [...groups].map(([tag, parts]) => make("section", {}, make("h2", {}, tag), ...parts));
  document.getElementById("operations").replaceChildren(...sections);
}

function find(word) {
  for (const section of document.querySelectorAll("#operations section")) {
    const parts = [...section.children].filter((part) => part.dataset.words);
    for (const part of parts) part.hidden = !part.dataset.words.includes(word);
    section.hidden = parts.every((part) => part.hidden);
  }
}

document.getElementById("find").addEventListener("input", (event) => find(event.target.value.trim().toLowerCase()));
try {
  const answer = await fetch("/openapi.json");
  if (!answer.ok) throw new Error(`openapi.json: ${answer.status}`);
  show(await answer.json());
} catch (error) {
  const problem = document.getElementById("problem");
  problem.textContent = error.message;
  problem.hidden = false;
}
