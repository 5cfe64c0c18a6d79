"""Rules that are looked at where the shells keep them: broken ones would show late, or in nothing but time."""

from __future__ import annotations

from typing import Any

from frontend_svc.requests.sessions.session import Session
from scheduler_svc.core.cluster.frontends import End
from scheduler_svc.core.cluster.register import Register
from scheduler_svc.core.state.requests.request import Request
from signalbox.links.heartbeat import HEARTBEAT_S, Attention, Silence
from tests.simulation.ring.clock import current_process

STOOD_S = 2.0
"""Whoever stood still for longer has not heard others by its own fault."""
_is_silent, _is_whole = Silence.is_silent, Attention.is_whole
_on_outputs = Session.on_outputs
_hear = getattr(Session, "hear", None)
_forget, _add_orphan = Register.forget, Register.add_orphan


def watched() -> list[tuple[Any, str, Any]]:
    """What stands in for what: owner, name, function."""
    return [
        (Silence, "is_silent", _judge_link),
        (Attention, "is_whole", _judge_all),
        (Register, "forget", _note_ended),
        (Register, "add_orphan", _take_in),
        (Session, "on_outputs", _take_outputs),
        (Session, "hear", _hear_leg),
    ]


def note(finding: str) -> None:
    """A rule is broken: shells may catch what is raised, so it is kept until the end."""
    process = current_process()
    process.node.ring.findings.append(f"{process.world.now:.3f} {process.name}: {finding}")


def _judge_link(silence: Silence, now: float) -> bool:
    """H3."""
    verdict = _is_silent(silence, now)
    if verdict:
        _check_attention("a link is called silent")
    return verdict


def _judge_all(attention: Attention, now: float) -> bool:
    """H3."""
    has_looked = attention._looked_at is not None
    verdict = _is_whole(attention, now)
    if verdict and has_looked:
        _check_attention("others are judged")
    return verdict


def _check_attention(what: str) -> None:
    process = current_process()
    if process.stood_s > STOOD_S and process.world.now - process.thawed_at < HEARTBEAT_S:
        note(f"{what} right after {process.stood_s:.1f} s in which it stood still itself (H3)")


def _note_ended(register: Register, request: Request, *end: End) -> None:
    ended: set[Any] = register.__dict__.setdefault("ended", set())
    ended.add((request.key, request.attempt))
    _forget(register, request, *end)


def _take_in(register: Register, request: Request, now: float) -> None:
    """T3."""
    if (request.key, request.attempt) in register.__dict__.get("ended", ()):
        note(f"{request.key} is taken in again, attempt {request.attempt}, which has ended here (T3)")
    _add_orphan(register, request, now)


def _take_outputs(session: Session, attempt: int, *given: Any) -> None:
    """E10."""
    known, is_current = len(session.output), attempt == session.attempt
    _on_outputs(session, attempt, *given)
    if len(session.output) > known and not is_current:
        note(f"{session.request_id} takes tokens of attempt {attempt}, and has {session.attempt} (E10)")


def _hear_leg(session: Session, leg: int, *given: Any) -> Any:
    """HO10."""
    hearing = _hear(session, leg, *given)
    if hearing.name == "TAKEN":
        highest: dict[int, int] = session.__dict__.setdefault("highest_leg", {})
        if leg < highest.get(session.attempt, 0):
            note(f"{session.request_id} hears leg {leg}, and has heard {highest[session.attempt]} (HO10)")
        highest[session.attempt] = leg
    return hearing
