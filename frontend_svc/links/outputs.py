"""Reads what one step of a worker made, and feeds it to the sessions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Any, Final

from frontend_svc.requests.events import TokenLogprobs
from frontend_svc.requests.sessions.legs import MAX_WAITING, Hearing, Said
from frontend_svc.requests.sessions.session import Session
from frontend_svc.requests.sessions.session_table import SessionTable
from signalbox.errors import InternalError, SignalboxError, from_code
from signalbox.protocol.columns import ATTEMPTS, I32, U32, unpack
from signalbox.protocol.enums import FinishReason
from signalbox.protocol.model_identity import UNSAID, ModelIdentity
from signalbox.v1 import worker_pb2 as worker

log = logging.getLogger(__name__)

ANOTHERS: Final = (
    "request %s: leg %d is worker %s's, and what worker %s says under that leg is left out; if this goes on, look for a"
    " second scheduler with `signalbox status`"
)
"""Warning that one worker speaks for another: request, leg, who has it, who speaks."""
NOT_NAMED: Final = (
    "request %s: the scheduler has not said who has leg %d, and worker %s has sent more than %d tokens under it: they"
    " are left out and computed again; look whether this frontend hears the scheduler"
)
"""Warning that too much waits for the scheduler's word: request, leg, who speaks, how much may wait."""
FORM_FIELD: Final = "structured_output"
"""How workers call the field of a form."""


def feed(
    batch: worker.OutputBatch,
    table: SessionTable,
    now: float,
    worker_id: str,
    identity: ModelIdentity = UNSAID,
) -> None:
    """Hands every token and every end of `batch`, which `worker_id` of that identity made, to its session, if the
    request is there (R11, HO10). A session that fails on it fails alone.

    What is known of prompts goes ahead of the tokens and ends of the same step. Raises ValueError for broken columns.
    """
    speaker = _Speaker(table, worker_id, identity)
    for found in batch.found:
        speaker.says(found.attempt, 0, 0, Session.on_found, found.num_cached_tokens)
    for part in batch.prompt_logprobs:
        speaker.says(
            part.attempt, part.leg, len(part.tokens), Session.on_prompt_logprobs, part.start, part.tokens
        )
    for vector in batch.vectors:
        speaker.says(vector.attempt, 0, 0, Session.on_vector, vector.values)
    logprobs: dict[int, Sequence[TokenLogprobs]] = {item.attempt: item.tokens for item in batch.logprobs}
    for (attempt, start, token_ids), leg in zip(read_outputs(batch), read_legs(batch), strict=False):
        values = start, token_ids, logprobs.get(attempt, ()), now
        speaker.says(attempt, leg, len(token_ids), Session.on_outputs, *values)
    for finished in batch.finished:
        speaker.says(finished.attempt, finished.leg, 0, _finish, finished)


class _Speaker:
    """One worker, telling sessions of their requests."""

    def __init__(self, table: SessionTable, worker_id: str, identity: ModelIdentity) -> None:
        self._table = table
        self._worker_id, self._identity = worker_id, identity

    def says(self, attempt: int, leg: int, num_tokens: int, take: Callable[..., None], *values: Any) -> None:
        """`take` hears the session, the attempt and its `values`: now, once the scheduler has named us, or never."""
        session = self._table.by_attempt(attempt)
        if session is None:
            return
        hearing = session.hear(leg, self._worker_id, self._identity)
        if hearing is Hearing.TAKEN:
            _tell(session, take, attempt, *values)
        elif hearing is Hearing.WAITS:
            later = partial(_tell, session, take, attempt, *values)
            if not session.legs.keep(Said(leg, self._worker_id, self._identity, num_tokens, later)):
                log.warning(NOT_NAMED, session.request_id, leg, self._worker_id, MAX_WAITING)
        elif hearing is Hearing.LEFT_OUT:
            owner = session.legs.worker_of(leg)
            log.warning(ANOTHERS, session.request_id, leg, owner, self._worker_id)


def _tell(session: Session, take: Callable[..., None], attempt: int, *values: Any) -> None:
    try:
        take(session, attempt, *values)
    except Exception:
        log.exception("the session of request %s failed on its output", session.request_id)
        session.fail(InternalError("the output could not be processed"))


def read_outputs(batch: worker.OutputBatch) -> list[tuple[int, int, tuple[int, ...]]]:
    """Attempt, start and new tokens of each request. Raises ValueError when columns do not fit each other."""
    attempts, starts = ATTEMPTS.read_columns(batch)
    tokens = tuple(unpack(batch.token_ids, I32))
    counts = batch.counts or b"\1" * len(attempts)
    if not len(attempts) == len(starts) == len(counts) or sum(counts) != len(tokens):
        raise ValueError("columns of different lengths")
    if not batch.counts:
        return [(a, s, (t,)) for a, s, t in zip(attempts, starts, tokens, strict=True)]
    outputs, end = [], 0
    for attempt, start, count in zip(attempts, starts, counts, strict=True):
        outputs.append((attempt, start, tokens[end : end + count]))
        end += count
    return outputs


def read_legs(batch: worker.OutputBatch) -> Iterable[int]:
    """The leg of each output of the batch. Raises ValueError when the column does not fit."""
    if not batch.legs:
        return repeat(0)
    legs = unpack(batch.legs, U32)
    if 4 * len(legs) != len(batch.attempts):
        raise ValueError("columns of different lengths")
    return legs


def _error_of(session: Session, finished: worker.OutputFinished) -> SignalboxError:
    """Why a request failed, with the form's field as its client calls it."""
    message, field = finished.error.message, finished.error.field
    form = session.request.sampling.get(FORM_FIELD)
    if field == FORM_FIELD and form is not None:
        field = form.field
        if message.startswith(FORM_FIELD):
            message = field + message.removeprefix(FORM_FIELD)
    return from_code(finished.error.code, message, field)


def _finish(session: Session, attempt: int, finished: worker.OutputFinished) -> None:
    error: SignalboxError | None = None
    if finished.HasField("error"):
        error = _error_of(session, finished)
    reason = FinishReason(finished.reason or FinishReason.ERROR)
    session.on_finished(attempt, reason, finished.num_output_tokens, error)
