"""What the scheduler's steps of suspects (docs/liveness.md, S2) mean to a worker that is left alone behind one (A2)."""

from __future__ import annotations

from worker_svc.core.requests.request_state import RequestTable, SlotStatus
from worker_svc.core.step import StepDelta


class SoloSteps:
    """Slots that the last step left out, so that a suspect ran alone, and those that may crash a worker."""

    def __init__(self) -> None:
        self.suspects: set[int] = set()
        """Slots that have had a step of their own. With its first token a request is none any more."""
        self._rows: list[int] = []

    def note(self, delta: StepDelta) -> None:
        """A step of the scheduler's is applied; it has let those go on that were set aside before."""
        self._rows = delta.aside_slots
        if delta.is_solo:
            starts = (start.slot for start in (*delta.started, *delta.resumed))
            self.suspects.update((*(slot for slot, _, _ in delta.chunks), *starts))

    def lift(self, table: RequestTable) -> None:
        """There is no scheduler: whoever was set aside goes on, and a suspect whose prompt is not computed rests, as it
        would run beside all others."""
        table.paused[self._rows] = False
        self._rows = []
        prefills = [slot for slot in self.suspects if table.status[slot] == SlotStatus.PREFILL]
        table.paused[prefills] = True
