// Calls to the server that the page came from.
import { readEvents } from "./sse.js";

const key = document.getElementById("key");

// What is served: ids, and for each the defaults of its sampling and what its chats know.
export async function listModels() {
  const response = await call("/v1/models");
  return (await response.json()).data;
}

// Yields the chunks of a streamed completion.
export async function* complete(path, body, signal) {
  const response = await call(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  for await (const { data } of readEvents(response)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Error(chunk.error.message);
    yield chunk;
  }
}

// Yields {event, data} of the board.
export async function* watchBoard(signal) {
  yield* readEvents(await call("/board/events", { signal }));
}

async function call(path, options = {}) {
  const headers = { ...options.headers };
  if (key.value) headers.authorization = `Bearer ${key.value}`;
  const response = await fetch(path, { ...options, headers });
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  const error = new Error(body?.error?.message ?? `${path}: ${response.status} ${response.statusText}`);
  error.needsKey = response.status === 401 || response.status === 403;
  if (error.needsKey) key.closest("details").open = true;
  throw error;
}
