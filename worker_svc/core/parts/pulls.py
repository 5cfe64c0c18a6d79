"""The part of workers that read cached blocks from each other (PB)."""

from __future__ import annotations

from signalbox.protocol.parts.pulls import PullOrders
from worker_svc.core.parts.part import Part, Phase


class PullsPart(Part):
    """Nothing of pulls is in the table: whoever follows the core begins and ends them by committed steps
    (`PullCoordinator`)."""

    kind = PullOrders
    phase = Phase.ORDER
