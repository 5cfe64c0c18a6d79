"""What a model gets of a machine, and why."""

from __future__ import annotations

from dataclasses import dataclass

from signalbox.runtime.machine.cpus import Machine

LONG_SPINS, SHORT_SPINS = 2000, 100
"""How often a thread looks whether there is more to do before it sleeps: 20 to 150 us of looks, or 1 to 8."""


@dataclass(frozen=True)
class Share:
    """Threads of a worker."""

    threads: int
    reason: str
    """For people."""


def share_of(machine: Machine, num_workers: int = 1) -> Share:
    """What each of so many workers gets unless somebody says a number.

    Physical cores, as two threads of one core read no faster than one. The services take what is left: the cores' other
    threads, or one core where there are no others. Of two processors the model gets both: it is there that one less
    costs most, and steps of few tokens leave one alone anyway.
    """
    cores, cpus = len(machine.cores), len(machine.cpus)
    if cpus <= 2:
        most, reason = cpus, "all processors"
    elif cpus > cores:
        most, reason = cores, _cores_of(machine)
    else:
        most, reason = cores - 1, f"{_cores_of(machine)} but one, which is for the services"
    if machine.quota is not None and machine.quota < most:
        whole = max(1, int(machine.quota))
        most = whole - 1 if whole > 2 else whole
        reason = f"a quota of {machine.quota:g} processors"
    if num_workers > 1:
        reason += f", for {num_workers} workers"
    return Share(max(1, most // num_workers), reason)


def _cores_of(machine: Machine) -> str:
    kinds = "fast cores" if len(machine.fast_cpus) < len(machine.cpus) else "cores"
    on_nodes = f" on {len(machine.nodes)} nodes of memory" if len(machine.nodes) > 1 else ""
    return f"the {len(machine.cores)} {kinds}{on_nodes} of {len(machine.cpus)} processors"


def spins(machine: Machine, threads: int | None = None) -> int:
    """Looks before a thread of a worker sleeps; `threads`: that it has, None: as many as it gets unasked.

    Under a quota a look is time that the work is short of, and with more threads than processors it is time of the one
    that is waited for.
    """
    shares = machine.quota is not None and machine.quota < len(machine.cpus)
    wanted = share_of(machine).threads if threads is None else threads
    return SHORT_SPINS if shares or wanted > len(machine.cpus) else LONG_SPINS
