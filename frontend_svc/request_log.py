"""One line in the log for each request that ends or is refused; of its prompt nothing, unless the operator asks."""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable
from typing import Any, Literal

from frontend_svc.access.access_control import ANYBODY, AccessControl, Caller
from frontend_svc.clock import loop_time
from frontend_svc.requests.events import Finished
from frontend_svc.requests.request import CheckedRequest
from frontend_svc.requests.sessions.session import Session
from frontend_svc.requests.sessions.surroundings import Observer
from frontend_svc.text.tokenizer import Tokenizer
from signalbox.errors import InternalError, SignalboxError, code_of
from signalbox.protocol.enums import LossCause
from signalbox.telemetry import trace_context

logger = logging.getLogger(__name__)

RequestLines = Literal["off", "ends", "prompts"]
MAX_PROMPT_TOKENS = 1024
"""How much of a prompt is logged where prompts are."""


class LoggedSessions:
    """An `Observer` that passes everything on, and logs the ends of sessions."""

    def __init__(
        self, observer: Observer[Session], tokenizer: Tokenizer | None, *, with_prompts: bool
    ) -> None:
        self._observer = observer
        self._tokenizer, self._with_prompts = tokenizer, with_prompts
        self.on_output: Callable[[Session, int, float], None] = observer.on_output
        self.on_delivered: Callable[[float], None] = observer.on_delivered
        self.on_lost: Callable[[LossCause], None] = observer.on_lost
        self.on_moved: Callable[[Session], None] = observer.on_moved
        self.on_other_identity: Callable[[Session, str], None] = observer.on_other_identity

    def on_end(self, session: Session, finished: Finished) -> None:
        """The terminal event is out."""
        self._observer.on_end(session, finished)
        fields = _fields(session, finished)
        if self._with_prompts:
            fields["prompt"] = self._prompt(session.request)
        logger.info("request ended", extra=fields)

    def _prompt(self, request: CheckedRequest) -> str:
        """Its first tokens as text; as numbers where nobody knows their text."""
        token_ids = array("i", request.prompt[: 4 * MAX_PROMPT_TOKENS]).tolist()
        if self._tokenizer is None:
            return " ".join(map(str, token_ids))
        return self._tokenizer.decode(token_ids, with_special=True)


def log_refusal(access: AccessControl, error: SignalboxError) -> None:
    """A call was refused before it had a session. Its error's words are left out: they may quote the call."""
    caller = _caller_of(access)
    fields = {"outcome": code_of(error), "key_id": caller.key_id, "tenant": caller.tenant}
    logger.info("request refused", extra=fields)


def _caller_of(access: AccessControl) -> Caller:
    try:
        return access.caller
    except InternalError:  # refused for its key
        return ANYBODY


def _fields(session: Session, finished: Finished) -> dict[str, Any]:
    """What there is to know of a request that has ended; times in seconds since it was accepted."""
    request = session.request
    first_s = round(session.first_output_s - session.arrival_s, 6) if session.first_output_s else None
    return {
        "request_id": session.request_id,
        "trace_id": _trace_id(session),
        "key_id": request.key_id,
        "tenant": request.tenant,
        "worker_id": session.worker_id,
        "model": request.model,
        "operation": request.operation,
        "outcome": code_of(finished.error) if finished.error else finished.reason.name.lower(),
        "num_prompt_tokens": finished.num_prompt_tokens,
        "num_cached_tokens": finished.num_cached_tokens,
        "num_output_tokens": finished.num_output_tokens,
        "num_losses": session.losses.num_losses,
        "first_token_s": first_s,
        "duration_s": round(loop_time() - session.arrival_s, 6),
    }


def _trace_id(session: Session) -> str:
    """The trace of our span, or that of the client which is passed on; empty: the request is not traced."""
    context = session.span.context if session.span else trace_context.parse(session.request.trace.traceparent)
    return f"{context.trace_id:032x}" if context else ""
