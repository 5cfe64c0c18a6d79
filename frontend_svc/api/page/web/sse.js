// Server-sent events of a fetch: unlike EventSource, a request that can carry a key and a body.

// Yields {event, data} until the stream ends.
export async function* readEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const found = parse(block);
        if (found.data) yield found;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parse(block) {
  const found = { event: "message", data: "" };
  for (const line of block.split("\n")) {
    if (line.startsWith("event: ")) found.event = line.slice(7);
    if (line.startsWith("data: ")) found.data += line.slice(6);
  }
  return found;
}
