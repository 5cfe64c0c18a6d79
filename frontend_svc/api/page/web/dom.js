// Text becomes text: nothing that came from a model or a client is ever read as HTML.

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// Changes only what differs, so that a reader's selection and a screen reader's place stay.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// What a custom property of the page's style means now, as a colour that a canvas takes.
const known = new Map();
const probe = make("i", { hidden: "" });
document.body.append(probe);
export function color(name) {
  if (!known.has(name)) {
    probe.style.color = `var(${name})`;
    known.set(name, getComputedStyle(probe).color);
  }
  return known.get(name);
}

export function forgetColors() {
  known.clear();
}
