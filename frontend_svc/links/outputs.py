"""Reads what one step of a worker made, and feeds it to the sessions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from frontend_svc.requests.events import TokenLogprobs
from frontend_svc.requests.sessions.session import Session
from frontend_svc.requests.sessions.session_table import SessionTable
from signalbox.errors import InternalError, SignalboxError, from_code
from signalbox.protocol.columns import ATTEMPTS, I32, unpack
from signalbox.protocol.enums import FinishReason
from signalbox.protocol.model_identity import UNSAID, ModelIdentity
from signalbox.v1 import worker_pb2 as worker

log = logging.getLogger(__name__)


def feed(
    batch: worker.OutputBatch,
    table: SessionTable,
    now: float,
    worker_id: str,
    identity: ModelIdentity = UNSAID,
) -> None:
    """Hands every token and every end of `batch`, which `worker_id` of that identity made, to its session, if the
    request is there (R11). A session that fails on it fails alone."""

    def session_of(attempt: int) -> Session | None:
        session = table.by_attempt(attempt)
        if session is None or session.worker_id == worker_id or _hears(session, worker_id, identity):
            return session
        return None

    _feed_prompts(batch, session_of)
    logprobs: dict[int, Sequence[TokenLogprobs]] = {item.attempt: item.tokens for item in batch.logprobs}
    for attempt, start, token_ids in read_outputs(batch):
        session = session_of(attempt)
        if session is not None:
            try:
                session.on_outputs(attempt, start, token_ids, logprobs.get(attempt, ()), now)
            except Exception:
                _fail(session)
    for finished in batch.finished:
        session = session_of(finished.attempt)
        if session is not None:
            try:
                _finish(session, finished)
            except Exception:
                _fail(session)


def _hears(session: Session, worker_id: str, identity: ModelIdentity) -> bool:
    """Whether what a worker says of a session counts that is not known to be there: while it is known nowhere."""
    if not session.worker_id:
        session.on_heard_from(worker_id, identity)
        return True
    if session.origin.leave_out(worker_id):
        sentence = "request %s is on worker %s: what worker %s says of it is left out"
        log.warning(sentence, session.request_id, session.worker_id, worker_id)
    return False


def _feed_prompts(batch: worker.OutputBatch, session_of: Callable[[int], Session | None]) -> None:
    """What is known of prompts goes ahead of the tokens and ends of the same step."""
    for part in batch.prompt_logprobs:
        session = session_of(part.attempt)
        if session is not None:
            session.on_prompt_logprobs(part.attempt, part.start, part.tokens)
    for vector in batch.vectors:
        session = session_of(vector.attempt)
        if session is not None:
            session.on_vector(vector.attempt, vector.values)


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


def _finish(session: Session, finished: worker.OutputFinished) -> None:
    error: SignalboxError | None = None
    if finished.HasField("error"):
        error = from_code(finished.error.code, finished.error.message, finished.error.field)
    reason = FinishReason(finished.reason or FinishReason.ERROR)
    session.on_finished(finished.attempt, reason, finished.num_output_tokens, error)


def _fail(session: Session) -> None:
    log.exception("the session of request %s failed on its output", session.request_id)
    session.fail(InternalError("the output could not be processed"))
