"""What a session needs around it: whom it tells, who measures it, the table that it stands in."""

from __future__ import annotations

from typing import Protocol, TypeVar

from frontend_svc.clock import Clock
from frontend_svc.requests.events import Finished
from signalbox.protocol.enums import LossCause

Session_contra = TypeVar("Session_contra", contravariant=True)
OneSession = TypeVar("OneSession")


class Operations(Protocol[Session_contra]):
    """What sessions say to the scheduler; each call concerns the session's current attempt."""

    def submit(self, session: Session_contra) -> None:
        """Submits a new attempt."""

    def cancel(self, session: Session_contra) -> None:
        """Cancels: nobody wants the output any more."""

    def finish(self, session: Session_contra) -> None:
        """Ends what a stop string has completed."""

    def pause(self, session: Session_contra) -> None:
        """Asks for a pause: the client is slow."""

    def check(self, session: Session_contra, worker_id: str, worker_instance: str) -> None:
        """Asks whether anybody still has it: a worker that may have had it was replaced by this process."""

    def unpause(self, session: Session_contra) -> None:
        """Ends the pause: the client has caught up."""


class Observer(Protocol[Session_contra]):
    """What measures sessions; it is told of what happens to them."""

    def on_output(self, session: Session_contra, num_tokens: int, now: float) -> None:
        """Output came; called before `session.last_output_s` moves to `now`."""

    def on_delivered(self, seconds: float) -> None:
        """All handlers that a worker's message woke have passed its output on, so long after it came."""

    def on_lost(self, cause: LossCause) -> None:
        """Hears that an attempt was lost, and why."""

    def on_other_identity(self, session: Session_contra, identity: str) -> None:
        """An output goes on under another identity of the model than it was begun with: none of that is left (I9)."""

    def on_moved(self, session: Session_contra) -> None:
        """A request goes on where it was handed over to; output of it has come from there (HO10)."""

    def on_end(self, session: Session_contra, finished: Finished) -> None:
        """The terminal event is out."""


class Owner(Protocol[OneSession]):
    """What a session needs of the table that it stands in."""

    operations: Operations[OneSession]
    observer: Observer[OneSession]
    clock: Clock
    replay_limit: int
    max_backlog_tokens: int

    def renumber(self, session: OneSession) -> None:
        """Gives the session its next attempt."""

    def retry(self, session: OneSession, delay_s: float) -> None:
        """Has the session begin another attempt after so long, unless it has ended or begun one by then."""

    def forget(self, session: OneSession) -> None:
        """Takes a session that has ended out of the table."""
