"""Calls that look like waits and are none, or whose waits are found elsewhere."""

from __future__ import annotations

HANDED_IN = frozenset(
    {"_app", "continuation", "behaviour", "on_tick", "_execute", "_check_form", "_on_attached"}
)
"""Coroutines of ours that an object was given, by the name that they have there."""

NO_WAITS = {
    "LeadershipServicer.call: getattr(servicer, method)": "a handler of ours",
    "LeadershipServicer.FindLeader: self._leading.FindLeader": "a handler of ours",
    "InProcessCalls.execute: self._endpoints[batch.endpoint]": "a handler of ours",
    "HttpAuth.__call__: await answer_error(request, error)": "an answer, which `send_with_headers` sends",
    "LocalCallers.__call__: await answer_error(request, error)": "an answer, which `send_with_headers` sends",
    "AnthropicApi.create: body.read": "a coroutine of ours",
    "OpenAIApi.chat: body.read": "a coroutine of ours",
    "OpenAIApi.respond: body.read": "a coroutine of ours",
    "FormCheck.__call__: self": "a coroutine of ours",
    "Session.next_delta: self._deltas.get": "a coroutine of ours",
    "SchedulerProcess.lead: lease.acquire": "a coroutine of ours",
    "WorkerServicer.StreamOutputs: self._outputs.stream": "a coroutine of ours",
    "FeedStream._next: self._mover.read": "a coroutine of ours, which has a thread copy blocks",
    "PullTarget._write: self._mover.write": "a coroutine of ours, which has a thread copy blocks",
    "TransferTarget._take_blocks: self._mover.write": "a coroutine of ours, which has a thread copy blocks",
    "_stream.call: made": "a handler of ours",
    "with_beats: responses.aclose": "a generator of ours, which has ended or is cancelled",
    "GrammarTable.is_made: self.maker.wait": "a function of ours",
    "Masks.bits: self._maker.wait": "a function of ours",
    "MaskWaits.wait: self._maker.wait": "a function of ours",
    "StepEngine._end_fences: self._copier.wait": "a function of ours",
    "StepEngine._end_fences: self._disk.wait": "a function of ours, which waits for nobody",
    "DiskTier.close: self.wait": "a function of ours, which waits for nobody",
    "Leader.close: peer.wait": "a function of ours",
    "_on_several_hosts: gathering.wait": "a function of ours",
    "_advance: reading.result": "what was read so far",
    "Session.on_placed: self._deltas.accept": "a function of ours, which takes no connection",
    "WorkerLinks.__init__: self._orders.connect": "a function of ours, which connects to nobody",
    "_reset: _LIBC.connect": "it disconnects, which takes no time",
    "Probes.start: asyncio.start_server": "it listens, which takes no time",
    "HttpServer._hand_over: loop.connect_accepted_socket": "it hands over, which takes no time",
    "Server.set_serving: self._health.set": "grpc's own state",
    "Server.set_alive: self._health.set": "grpc's own state",
    "Server.stop: self._health.enter_graceful_shutdown": "grpc's own state",
}
"""By function and call, each with what it is."""
