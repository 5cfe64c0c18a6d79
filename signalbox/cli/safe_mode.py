"""Safe mode as plain values, and in words. Words and units as in admin.proto."""

from __future__ import annotations

from dataclasses import dataclass

from signalbox.cli.table import count


@dataclass(frozen=True)
class SafeMode:
    """What is suspended, and for whom. Off: neither level is set."""

    operator_level: int | None = None
    budget_level: int | None = None
    num_waiting: int = 0
    num_paused: int = 0
    burn_rate: float | None = None

    @property
    def level(self) -> int | None:
        """Classes with a higher priority number are suspended; None: none are."""
        levels = [level for level in (self.operator_level, self.budget_level) if level is not None]
        return min(levels, default=None)


def describe(mode: SafeMode) -> str:
    """What is suspended and by whom, as one line."""
    burn = ""
    if mode.burn_rate is not None:
        burn = f"; the error budget burns {mode.burn_rate:.1f} times as fast as it may"
    if mode.level is None:
        return f"safe mode is off{burn}"
    levels = {"an operator": mode.operator_level, "the error budget": mode.budget_level}
    whom = " and ".join(name for name, level in levels.items() if level is not None)
    paused = f"{mode.num_paused} {'is' if mode.num_paused == 1 else 'are'} paused"
    waiting = f"{count(mode.num_waiting, 'request')} {'waits' if mode.num_waiting == 1 else 'wait'}"
    return (
        f"safe mode: priority numbers above {mode.level} are suspended by {whom}; {waiting}, {paused}{burn}"
    )
