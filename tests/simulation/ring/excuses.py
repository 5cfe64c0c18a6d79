"""Which errors a plot allows: all others are findings."""

from __future__ import annotations

from signalbox import errors
from tests.simulation.ring.client import Client
from tests.simulation.ring.handoffs import ORDERS
from tests.simulation.ring.request import RingRequest
from tests.simulation.ring.setup import Fault, Loss, Plot

HARMLESS = ORDERS | {
    "set_clock",
    "slow",
    "reset_links",
    "reset_cache",
    "share_lease",
    "store_clock",
    "slow_steps",
    "strike_pulls",
}
"""Kinds of faults that may cost nobody an error, however long they last."""
SLACK_S = 3.0
"""What finding each other again takes when a fault is over: restarts, dials that hang, backoff."""


def unexcused(plot: Plot, client: Client) -> str:
    """Why the client's end is a finding; empty: it is none."""
    error = client.finished.error if client.finished is not None else None
    if error is None or _is_excused(plot, client, error):
        return ""
    return f"{client}: nothing excuses {type(error).__name__}: {error}"


def _is_excused(plot: Plot, client: Client, error: errors.SignalboxError) -> bool:
    request: RingRequest = client.request
    if isinstance(error, errors.CancelledError):
        return request.leaves_after_s is not None
    if isinstance(error, errors.ResourceExhaustedError):
        is_limited = bool(plot.setup.tenants) or int(plot.setup.scheduler.get("max_waiting", 100_000)) < 1000
        is_new = not client.output and not client.session.losses.num_losses  # F3: only those
        return is_limited and is_new and error.retry_after_s is not None
    if isinstance(error, errors.InvalidRequestError):
        if request.rule is None:
            return False
        return plot.setup.grammar_failures > 0 or len(client.output) == request.rule.most_masks
    if isinstance(error, errors.InternalError):
        is_odd = request.fails or request.is_poison or request.is_nan or request.is_hanging
        return is_odd or _may_be_there_twice(plot)
    if isinstance(error, errors.UnavailableError):
        return _may_be_unavailable(plot, client)
    return False


def _may_be_there_twice(plot: Plot) -> bool:
    """Who is not to blame may have been there twice when a worker crashed or hung."""
    kinds = [fault.kind for fault in plot.faults]
    num_hangs, kills = kinds.count("hang"), any(planned.request.is_poison for planned in plot.requests)
    return kinds.count("lose_device") + num_hangs > 1 or (num_hangs > 0 and kills)


def _may_drain(plot: Plot) -> bool:
    is_told = any(fault.kind in ("terminate", "roll") and fault.targets[0][0] == "w" for fault in plot.faults)
    drains = is_told and plot.setup.worker.get("drain_s", 0.0)
    return bool(drains or any(fault.kind == "drain" for fault in plot.faults))


def _may_be_unavailable(plot: Plot, client: Client) -> bool:
    request = client.request
    if request.is_poison:
        return True
    if any(fault.kind == "terminate" and fault.targets[0][0] == "f" for fault in plot.faults):
        return True  # its server was stopping
    if _may_be_there_twice(plot):
        return True
    if _may_drain(plot) and not client.output:
        return True  # nobody takes anything new
    if _is_walled_off(plot, client.node.name):
        return True
    harms = [fault for fault in plot.faults if fault.kind not in HARMLESS and not _is_between_workers(fault)]
    # Who comes back under two leaders may find another than its frontends have, until these notice.
    twins = [fault for fault in plot.faults if fault.kind == "share_lease"]
    harms += [twin for twin in twins if any(_is_during(harm, twin) for harm in harms)]
    away_s = sum(fault.lasts_s + SLACK_S for fault in harms)
    away_s += _num_ends(plot) * (plot.setup.restart_s[1] + SLACK_S)
    return away_s >= _patience_s(plot)


def _is_during(fault: Fault, other: Fault) -> bool:
    return fault.at <= other.at + other.lasts_s and other.at <= fault.at + fault.lasts_s + SLACK_S


def _is_walled_off(plot: Plot, frontend: str) -> bool:
    """Never reaches any worker."""
    walls = {
        fault.targets[1] for fault in plot.faults if fault.kind == "firewall" and fault.targets[0] == frontend
    }
    return len(walls) == plot.setup.num_workers


def _num_ends(plot: Plot) -> int:
    """How many processes of workers may end because of what they are asked."""
    request = [planned.request for planned in plot.requests]
    return 2 * any(each.is_poison for each in request) + (sum(each.is_nan for each in request) > 2)


def _patience_s(plot: Plot) -> float:
    """For how long nothing at all may be there before somebody is told."""
    scheduler, frontend = plot.setup.scheduler, plot.setup.frontend
    return min(
        float(scheduler.get("no_worker_grace_s", 30.0)),
        float(frontend.get("queue_s", 5.0)),
        float(frontend.get("lost_scheduler_s", 60.0)),
    )


FINDS_S = 4.0
"""Everybody finds a scheduler again within this time."""
TWINS = {"duplicate", "set_clock", "reset_cache", "safe_mode"}
"""Kinds of faults under which a second process of a worker's id takes nothing from the first (H5)."""
GENTLE = HARMLESS | {
    "safe_mode",
    "drain",
    "terminate",
    "kill",
    "freeze",
    "fail_store",
    "slow_store",
    "compile",
}
"""Kinds of faults that cost no request that runs a thing it has computed, as long as they are about schedulers only."""


def may_lose(plot: Plot, loss: Loss) -> bool:
    """Whether the plot allows that an attempt was lost: a pause was promised where only schedulers and links go, and
    nothing at all where nothing does (docs/liveness.md, E)."""
    request = [planned.request for planned in plot.requests]
    if loss.request_id == "odd" or any(each.is_poison or each.is_nan or each.is_hanging for each in request):
        return True
    if all(fault.kind in ORDERS for fault in plot.faults):
        return False
    if float(plot.setup.scheduler.get("start_grace_s", 5.0)) < FINDS_S:
        return True
    kinds = {fault.kind for fault in plot.faults}
    are_gentle = kinds <= TWINS or all(_is_gentle(fault) for fault in plot.faults)
    return not (are_gentle and loss.was_running)


def _is_gentle(fault: Fault) -> bool:
    if fault.kind in ("terminate", "kill", "freeze"):
        return fault.targets[0][0] == "s"
    if fault.kind == "roll" or _is_between_workers(fault):
        return True
    return fault.kind in GENTLE and fault.kind not in ("slow_steps", "strike_pulls")


def _is_between_workers(fault: Fault) -> bool:
    """It concerns a path that nothing but hand-offs takes."""
    is_path = fault.kind in ("cut", "cut_one_way", "slow", "reset_links", "refuse_between")
    return is_path and all(target[0] == "w" for target in fault.targets)


def concerns_workers(fault: Fault) -> bool:
    """Nothing of it keeps a scheduler from knowing what runs where."""
    if fault.kind in ("kill", "terminate"):
        return fault.targets[0][0] == "w"
    kinds = ORDERS | {"drain", "roll", "reset_cache", "safe_mode", "slow_steps"}
    return fault.kind in kinds or _is_between_workers(fault)
