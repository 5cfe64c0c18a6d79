"""The life of a request: its session alone emits the one terminal event, whatever services and clients do.

Nothing here does I/O: what is to be said to the scheduler goes to `Operations`, what the client gets to a
`DeltaQueue`. Everything runs on the event loop.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Sequence
from enum import Enum, auto

from frontend_svc.access.quota import QuotaLease
from frontend_svc.requests.block_hashes import BlockHashes
from frontend_svc.requests.events import Delta, Finished, TokenLogprobs
from frontend_svc.requests.request import CheckedRequest
from frontend_svc.requests.sessions.delta_queue import DeltaQueue
from frontend_svc.requests.sessions.legs import Hearing, Legs, Said
from frontend_svc.requests.sessions.losses import Losses
from frontend_svc.requests.sessions.output_origin import OutputOrigin
from frontend_svc.requests.sessions.surroundings import Owner
from frontend_svc.text.certain import Certain
from frontend_svc.text.prompt_logprobs import PromptLogprobs
from frontend_svc.text.text_stream import OutputStream
from signalbox.errors import (
    CancelledError,
    DeadEndError,
    InternalError,
    ResourceExhaustedError,
    SignalboxError,
)
from signalbox.protocol.enums import FinishReason, LossCause
from signalbox.protocol.model_identity import UNSAID, ModelIdentity
from signalbox.telemetry.attributes import (
    EVENT_LOST,
    EVENT_MOVED,
    LOSS_CAUSE,
    MOVE_LEG,
    MOVE_SOURCE,
    MOVE_TARGET,
    REASON,
)
from signalbox.telemetry.spans import Span

RETRY_S = 1.0
"""Seconds until the next attempt after a refusal that names no time."""


class SessionStatus(Enum):
    """Where a request is in its life."""

    WAITING = auto()
    """Its current attempt is not known to be placed."""
    RUNNING = auto()
    """A worker has the current attempt."""
    ENDED = auto()
    """The terminal event is out."""


class Session:
    """One request of a client, over all its attempts."""

    def __init__(
        self,
        request: CheckedRequest,
        table: Owner[Session],
        text: OutputStream | None,
        hashes: BlockHashes | None,
        span: Span | None = None,
        lease: QuotaLease | None = None,
        ring_name: str = "",
    ) -> None:
        self.request = request
        self.ring_name = ring_name or request.request_id
        """What scheduler and workers call it."""
        self.lease = lease
        """Its place among what its key may have open; None: nobody counts."""
        self.span = span
        """Being recorded; None: the request is not traced."""
        self.hashes = hashes
        """Names of the full blocks of prompt and prior output; None: not hashed."""
        self.attempt = 0
        self.submitted = False
        """The current attempt was written to a stream to the scheduler."""
        self.status = SessionStatus.WAITING
        self.legs = Legs()
        """Who may run the current attempt."""
        self.origin = OutputOrigin()
        self.losses = Losses()
        self.output = array("i")
        """Output tokens so far, of all attempts."""
        self.num_cached_tokens = 0
        self.paused_s: float | None = None
        """Since when the current attempt is paused; None: it is not."""
        self.was_paused = False
        """The current attempt has been paused, now or before."""
        self.arrival_s = table.clock()
        self.placed_s = 0.0
        """When a worker first had it, on the owner's clock; 0: none yet, or nobody said."""
        self.first_output_s = 0.0
        """When output first came, on the owner's clock; 0: none yet."""
        self.last_output_s = 0.0
        """When output last came; 0: none yet."""
        self._table = table
        self._text = text
        wants_prompt = "prompt_logprobs" in request.sampling
        self._prompt_logprobs = PromptLogprobs(request.num_prompt_tokens - 1 if wants_prompt else 0)
        self._has_vector = False
        self._deltas = DeltaQueue()

    @property
    def request_id(self) -> str:
        """The client's or our own name of the request."""
        return self.request.request_id

    @property
    def worker_id(self) -> str:
        """Worker that has the current attempt, of whose highest leg output came; empty: not known."""
        return self.legs.worker_id

    @property
    def was_submitted(self) -> bool:
        """A scheduler may have taken it, with this attempt or an earlier one."""
        return self.submitted or self.losses.num_losses > 0

    @property
    def ended(self) -> bool:
        """The terminal event is out."""
        return self.status is SessionStatus.ENDED

    # ---- the client's side

    async def wait_accepted(self) -> None:
        """Returns when the request is placed or has output. Raises the error with which it was refused."""
        await self._deltas.wait_accepted()

    async def next_delta(self) -> Delta:
        """All output since the last call, as soon as there is some; the last delta has `finished`."""
        return self._read(await self._deltas.get())

    @property
    def has_news(self) -> bool:
        """Whether `take_delta` would have something."""
        return self._deltas.is_ready

    def take_delta(self) -> Delta:
        """All output since the last call, at once."""
        return self._read(self._deltas.take())

    def arm(self, waiter: asyncio.Future[None] | None) -> None:
        """Has `waiter` done when there are news, for a client's handler of several sessions; None: not any more."""
        self._deltas.arm(waiter)

    def want_whole(self) -> None:
        """The client reads nothing before the end."""
        self._deltas.want_whole()

    def _read(self, delta: Delta) -> Delta:
        if self.paused_s is not None and not self.ended:
            self.paused_s = None
            self._table.operations.unpause(self)
        return delta

    def cancel(self, error: SignalboxError | None = None) -> None:
        """Ends the request because its client left, its time ran out or we stop; else a no-op."""
        if not self.ended:
            self._table.operations.cancel(self)
            self._end(FinishReason.ABORT, error=error or CancelledError("the request was cancelled"))

    # ---- the services' side

    def on_placed(
        self,
        attempt: int,
        worker_id: str,
        num_cached_tokens: int,
        identity: ModelIdentity = UNSAID,
        leg: int = 0,
    ) -> None:
        """A worker has the request, or may go on with it under this leg (HO10)."""
        if not self._is_current(attempt):
            return
        self.status = SessionStatus.RUNNING
        self.placed_s = self.placed_s or self._table.clock()
        if self.legs.lacks_some_of(leg, worker_id):
            self.lose("output came from there while another worker had it", LossCause.OUTPUT_LOST)
            return
        self.legs.name(leg, worker_id)
        if self.worker_id == worker_id:
            self._goes_on_under(identity)
        if leg == 0:
            self.on_found(attempt, num_cached_tokens)
        self._deltas.accept()
        for said in self.legs.take_due():
            if self._is_current(attempt) and self._counts(said):
                said.take()

    def on_found(self, attempt: int, num_cached_tokens: int) -> None:
        """So many tokens of the prompt were computed already. Of a later attempt they may be its own."""
        if self._is_current(attempt) and not self.losses.num_losses:
            self.num_cached_tokens = min(num_cached_tokens, self.request.num_prompt_tokens)

    def hear(self, leg: int, worker_id: str, identity: ModelIdentity = UNSAID) -> Hearing:
        """A worker says something of the current attempt under this leg; what becomes of it."""
        if self.legs.is_speaking(leg, worker_id):
            return Hearing.TAKEN
        before, source = self.legs.current, self.worker_id
        hearing = self.legs.hear(leg, worker_id)
        if hearing is Hearing.TAKEN:
            self._goes_on_under(identity)
            if source not in ("", worker_id) and self.legs.current > before:
                self._moved(source)
        return hearing

    def on_outputs(
        self,
        attempt: int,
        start: int,
        token_ids: Sequence[int],
        logprobs: Sequence[TokenLogprobs],
        now: float,
    ) -> None:
        """Output tokens [start, start + len(token_ids)) of the request; repeated ones are skipped."""
        if not self._is_current(attempt):
            return
        known = len(self.output)
        if start > known:
            self.lose(f"output tokens {known} to {start - 1} are missing", LossCause.OUTPUT_LOST)
            return
        if "logprobs" not in self.request.sampling:
            logprobs = ()
        elif len(logprobs) != len(token_ids):
            self.fail(InternalError("the worker sent tokens without their log-probabilities"))
            return
        if start < known:
            token_ids, logprobs = token_ids[known - start :], logprobs[known - start :]
        if token_ids and self._prompt_logprobs.is_missing:
            self.lose("log-probabilities of the prompt are missing", LossCause.OUTPUT_LOST)
        elif token_ids:
            self._add_output(token_ids, logprobs, now)

    def on_prompt_logprobs(self, attempt: int, start: int, logprobs: Sequence[TokenLogprobs]) -> None:
        """Log-probabilities of the prompt tokens [start, start + len(logprobs)), start >= 1; an attempt begins anew."""
        if not self._is_current(attempt):
            return
        try:
            whole = self._prompt_logprobs.add(start, logprobs)
        except ValueError as error:
            self.lose(str(error), LossCause.OUTPUT_LOST)
            return
        if whole:
            self._deltas.put_prompt_logprobs(whole)

    def on_vector(self, attempt: int, values: bytes) -> None:
        """The result of a pooling request: f32, little endian."""
        if self._is_current(attempt):
            self._has_vector = True
            self._deltas.put_vector(values)

    def on_finished(
        self, attempt: int, reason: FinishReason, num_output_tokens: int, error: SignalboxError | None
    ) -> None:
        """The worker ended the request."""
        if not self._is_current(attempt):
            return
        if num_output_tokens > len(self.output):
            self.lose("the last output tokens are missing", LossCause.OUTPUT_LOST)
            return
        dead_end = ""
        if isinstance(error, DeadEndError):
            reason, dead_end, error = FinishReason.DEAD_END, error.message, None
        if error is None and self._prompt_logprobs.is_missing:
            self.lose("log-probabilities of the prompt are missing", LossCause.OUTPUT_LOST)
            return
        if error is None and self.request.pooling is not None and not self._has_vector:
            error = InternalError("the worker ended the request without its vector")
        if error is not None:
            reason = FinishReason.ERROR if reason is not FinishReason.ABORT else reason
        if reason in (FinishReason.ERROR, FinishReason.ABORT) and error is None:
            error = InternalError("the worker ended the request without saying why")
        stop = self._flush_text(is_whole=reason is FinishReason.STOP) if error is None else ""
        self._end(FinishReason.STOP if stop else reason, num_output_tokens, stop, error, dead_end)

    def on_rejected(self, attempt: int, error: SignalboxError) -> None:
        """The scheduler refused the request. A limit does not end what was accepted once: it tries again."""
        if not self._is_current(attempt):
            return
        if self.losses.num_losses and isinstance(error, ResourceExhaustedError):
            self.submitted = False  # nobody has it
            self._table.retry(self, error.retry_after_s or RETRY_S)
        else:
            self._end(FinishReason.ERROR, error=error)

    def on_lost(self, attempt: int, reason: str, cause: LossCause) -> None:
        """Nobody has the current attempt any more: goes on with a new one, unless it was lost too often."""
        if not self._is_current(attempt):
            return
        self.losses.add(cause)
        self._table.observer.on_lost(cause)
        if self.span is not None:
            words = {REASON: reason, LOSS_CAUSE: cause.name.lower()}
            self.span.event(EVENT_LOST, self._table.clock(), words)
        if self.request.pooling is None and len(self.output) >= self.request.max_tokens:
            # Only the terminal event was lost.
            self._end(FinishReason.STOP if (stop := self._flush_text()) else FinishReason.LENGTH, None, stop)
        elif error := self.losses.refuse(self._table.replay_limit, reason):
            self._end(FinishReason.ERROR, error=error)
        else:
            self.begin_attempt()

    def lose(self, reason: str, cause: LossCause) -> None:
        """Gives the current attempt up, which somebody may still have, and goes on with a new one."""
        if not self.ended:
            self._table.operations.cancel(self)
            self.on_lost(self.attempt, reason, cause)

    def fail(self, error: SignalboxError) -> None:
        """Ends the request with an error of ours, everywhere."""
        if not self.ended:
            self._table.operations.cancel(self)
            self._end(FinishReason.ERROR, error=error)

    def begin_attempt(self) -> None:
        """Submits prompt plus output so far under a new attempt."""
        self.origin.begin_attempt(len(self.output))
        self._table.renumber(self)
        self.submitted = False
        self.status = SessionStatus.WAITING
        self.legs.restart()
        self._prompt_logprobs.restart()
        # If its client is still slow, the next output pauses the new attempt.
        self.paused_s, self.was_paused = None, False
        self._table.operations.submit(self)

    # ---- inside

    def _is_current(self, attempt: int) -> bool:
        return attempt == self.attempt and self.status is not SessionStatus.ENDED

    def _counts(self, said: Said) -> bool:
        return self.hear(said.leg, said.worker_id, said.identity) is Hearing.TAKEN

    def _goes_on_under(self, identity: ModelIdentity) -> None:
        """A worker of this identity has the current attempt: so the scheduler says, or output came from there."""
        if self.origin.moves_to(identity):
            self._table.observer.on_other_identity(self, str(identity))

    def _moved(self, source: str) -> None:
        self._table.observer.on_moved(self)
        if self.span is not None:
            words: dict[str, str | int] = {
                MOVE_SOURCE: source,
                MOVE_TARGET: self.worker_id,
                MOVE_LEG: self.legs.current,
            }
            self.span.event(EVENT_MOVED, self._table.clock(), words)

    def _add_output(self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprobs], now: float) -> None:
        self.status = SessionStatus.RUNNING
        certain = Certain() if self._text is None else self._text.push(token_ids)
        found = certain.found
        if found is not None:
            token_ids, logprobs = token_ids[: found.num_tokens], logprobs[: found.num_tokens]
        self.output.extend(token_ids)
        self.losses.on_token()
        self._table.observer.on_output(self, len(token_ids), now)
        self.first_output_s = self.first_output_s or now
        self.last_output_s = now
        self._deltas.put(certain, token_ids, logprobs)
        if found is not None:
            self._table.operations.finish(self)
            self._end(FinishReason.STOP, stop=found.stop)
        elif self.paused_s is None and self._deltas.backlog > self._table.max_backlog_tokens:
            self.paused_s, self.was_paused = now, True
            self._table.operations.pause(self)

    def _flush_text(self, *, is_whole: bool = False) -> str:
        """Sends what the text stream held back; returns the stop string that it completes, or nothing. is_whole: the
        model ended the output itself."""
        if self._text is None:
            return ""
        certain = self._text.flush(is_whole=is_whole)
        self._deltas.put(certain, (), ())
        return certain.found.stop if certain.found is not None else ""

    def _end(
        self,
        reason: FinishReason,
        num_output_tokens: int | None = None,
        stop: str = "",
        error: SignalboxError | None = None,
        dead_end: str = "",
    ) -> None:
        """The one place that emits the terminal event."""
        count = len(self.output) if num_output_tokens is None else num_output_tokens
        finished = Finished(
            reason, self.request.num_prompt_tokens, count, self.num_cached_tokens, stop, error, dead_end
        )
        self.status = SessionStatus.ENDED
        self._table.forget(self)
        self._deltas.finish(finished)
        self._table.observer.on_end(self, finished)
