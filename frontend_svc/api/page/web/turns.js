// The turns of a chat as they are shown: text, reasoning folded, calls as blocks whose results can be given.
import { make, setText } from "./dom.js";

// A turn whose text is known; returns its element.
export function showTurn(output, role, content) {
  const turn = make("div", { class: "turn" }, make("b", {}, role), make("span", {}, content));
  output.append(turn);
  return turn;
}

// The assistant's turn, which grows with the deltas of a stream.
export class Answer {
  constructor(output) {
    this.turn = make("div", { class: "turn" }, make("b", {}, "assistant"));
    this.thought = null; // where reasoning is shown, once there is any
    this.text = null;
    this.calls = []; // {id, name, written, place, result}
    output.append(this.turn);
  }

  // Whether the delta had anything to show.
  add(delta) {
    if (delta.reasoning) this.#think(delta.reasoning);
    if (delta.content) {
      this.text ??= this.#append(make("span"));
      this.text.append(delta.content);
    }
    for (const call of delta.tool_calls ?? []) this.#call(call);
    return Boolean(delta.reasoning || delta.content || delta.tool_calls?.length);
  }

  // No delta follows: arguments become readable, and results can be given.
  end() {
    if (this.summary) setText(this.summary, `Reasoning, ${this.thought.textContent.length} characters`);
    for (const call of this.calls) {
      setText(call.place, pretty(call.written));
      call.result = make("textarea", { rows: "2", spellcheck: "false" });
      call.block.append(make("label", {}, "Result", call.result));
    }
  }

  get isEmpty() {
    return !this.thought && !this.text && !this.calls.length;
  }

  // As the next request tells it.
  get message() {
    const message = { role: "assistant", content: this.text?.textContent ?? null };
    if (this.thought) message.reasoning = this.thought.textContent;
    if (this.calls.length) {
      message.tool_calls = this.calls.map(({ id, name, written }) => ({ id, type: "function", function: { name, arguments: asObject(written) } }));
    } else message.content ??= "";
    return message;
  }

  // What the calls gave, as far as somebody has said it.
  get results() {
    return this.calls.map(({ id, result }) => ({ role: "tool", tool_call_id: id, content: result.value }));
  }

  // They were told: nothing about them can change any more.
  close() {
    for (const { result } of this.calls) result.readOnly = true;
  }

  #append(element) {
    this.turn.append(element);
    return element;
  }

  #think(text) {
    if (!this.thought) {
      this.summary = make("summary", {}, "Reasoning");
      this.thought = make("span");
      this.#append(make("details", {}, this.summary, this.thought));
    }
    this.thought.append(text);
  }

  #call({ index, id, function: told }) {
    if (!this.calls[index]) {
      const name = make("code");
      const place = make("pre");
      const block = this.#append(make("div", { class: "call" }, name, place));
      this.calls[index] = { id, name: "", written: "", shown: name, place, block };
    }
    const call = this.calls[index];
    call.name += told?.name ?? "";
    call.written += told?.arguments ?? "";
    setText(call.shown, call.name);
    setText(call.place, call.written);
  }
}

// Arguments as a conversation can have them: those that were cut are told as text.
function asObject(written) {
  try {
    JSON.parse(written);
    return written;
  } catch {
    return JSON.stringify({ arguments: written });
  }
}

// Arguments with line ends; what is no JSON (it was cut) stays as it is.
function pretty(written) {
  try {
    return JSON.stringify(JSON.parse(written), null, 2);
  } catch {
    return written;
  }
}
