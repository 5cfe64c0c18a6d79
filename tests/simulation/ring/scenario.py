"""Plots drawn from seeds: sizes, settings, requests and faults."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from signalbox.protocol.model_identity import ModelIdentity
from tests.simulation.groups import draw_groups, draw_states, with_host_tier
from tests.simulation.ring.automaton import Rule
from tests.simulation.ring.handoffs import draw_handoffs, draw_rolling, with_logprobs
from tests.simulation.ring.model import FAILING, NAN, POISON
from tests.simulation.ring.paths import draw_path
from tests.simulation.ring.request import RingRequest
from tests.simulation.ring.setup import Fault, Planned, Plot, RingSetup

FIRST_S = 0.8
"""Everybody has met by then."""
EARLY = 0.75
"""Share of scenarios whose faults end when no client waits any more: what follows is mostly heartbeats."""


SMALL_BYTES = 5000
"""Of waiting requests: two of them."""
TENANTS = (
    "[tenants.a]\nmax_running = 1\nmax_queued = 2",
    "[tenants.a]\nmax_queued = 1\n[tenants.b]\nmax_running = 2",
    "[default]\ntokens_per_s = 60\nmax_queued = 3",
)
"""Limits that their requests meet."""

FORMS = 0.2
"""Share of requests that follow a form, where nothing else is said."""
BURSTS_MS = (0.0, 0.0, 50.0, 400.0)
"""Of steps that only decode, together."""


@dataclass(frozen=True)
class Profile:
    """What kind of scenarios are drawn."""

    name: str = "any"
    faults: tuple[int, int] = (0, 4)
    """Fewest and most."""
    kinds: tuple[str, ...] = ()
    """Of faults; empty: all."""
    requests: tuple[int, int] = (4, 12)
    check_every: tuple[int, ...] = (29, 149, 149)
    frontends: tuple[int, ...] = (1, 1, 2)
    schedulers: tuple[int, ...] = (1, 1, 1, 2)
    workers: tuple[int, ...] = (1, 2, 2, 3)
    blocks: tuple[int, ...] = (12, 16, 24, 48)
    """Of each worker."""
    relays: float = 0.15
    """Share of rings with a relay."""
    drafts: tuple[int, ...] = (0, 0, 2)
    spread_s: float = 1.0
    """In which requests come."""
    odd: float = 0.1
    """Share of scenarios with requests that nobody can serve."""
    odd_kinds: tuple[str, ...] = ("poison", "failing", "nan", "nan")
    stores: float = 0.5
    """Share of leases that are in a store behind a network."""
    limits: float = 0.1
    """Share of rings whose tenants have limits."""
    is_slow: bool = False
    """Steps are long and outputs too, so that most requests still run when something happens."""
    long: float = 1.0
    """Share of the outputs that are, then."""
    again: float = 0.0
    """Share of requests that repeat an earlier one's prompt."""
    scheduler: tuple[tuple[str, object], ...] = ()
    """Settings that are not drawn."""
    identities: int = 0
    """Of the workers' weights; 0: they say none."""
    lanes: tuple[int, ...] = ()
    """Of each worker; empty: one."""
    forms: float = FORMS
    """Share of requests that follow a form."""
    masks: tuple[float, ...] = (0.0, 0.0, 0.05, 0.5)
    """Longest time that masks take, in seconds."""
    has_groups: bool = False
    """Whether layers of the model look back so far and no farther; then there is no host tier but where it is said."""
    has_states: bool = False
    """Whether the model keeps recurrent states, with checkpoints of them; then steps run in turn, and there is no host
    tier but where it is said."""
    has_host_tier: bool = False
    """Whether groups and checkpoints have places in a host tier, too."""
    handoffs: tuple[int, int] = (0, 0)
    """Fewest and most orders to hand a request over."""
    aimed: tuple[int, int] = (0, 0)
    """Fewest and most faults that are aimed at these."""
    aimed_kinds: tuple[str, ...] = ()
    is_rolling: bool = False
    """Whether all workers are replaced, one after the other."""
    worker: tuple[tuple[str, object], ...] = ()
    """Settings of workers that are not drawn."""


ANY = Profile()
CALM = Profile("calm", faults=(0, 0), schedulers=(1,), odd=0.0)


def draw(seed: int, profile: Profile = ANY) -> Plot:
    """The plot of a seed."""
    name = f"{profile.name}/{seed}"
    rng = random.Random(name)
    setup = _draw_setup(rng, profile)
    burst_ms = random.Random(f"{name} bursts").choice(BURSTS_MS)  # all else is drawn as before there were any
    setup = replace(setup, scheduler={"decode_burst_ms": burst_ms} | setup.scheduler)
    if profile.masks:
        dice = random.Random(f"{name} masks")
        setup = replace(setup, mask_s=dice.choice(profile.masks))
    if profile.has_groups:
        dice = random.Random(f"{name} groups")
        groups = draw_groups(dice, setup.block_size, setup.max_draft_tokens)
        setup = replace(setup, groups=groups, num_host_blocks=0)
    if profile.has_states:
        states = draw_states(random.Random(f"{name} states"), setup.block_size)
        setup = replace(setup, state_group=states, num_host_blocks=0, runs_ahead=False)
    if profile.has_host_tier:
        dice = random.Random(f"{name} host tier")
        num_spine_blocks, groups, states_too = with_host_tier(dice, setup.groups, setup.state_group)
        setup = replace(setup, num_host_blocks=num_spine_blocks, groups=groups, state_group=states_too)
    if profile.lanes:
        num_lanes = random.Random(f"{name} lanes").choice(profile.lanes)
        setup = replace(setup, num_lanes=num_lanes, runs_ahead=False)
    requests = _draw_requests(rng, setup, profile)
    if profile.forms > FORMS:
        requests = _with_forms(random.Random(f"{name} forms"), requests, profile.forms)
    if profile.handoffs[1]:
        setup = replace(setup, move_s=random.Random(f"{name} moves").choice((0.0, 0.02, 0.2)))
        requests = with_logprobs(random.Random(f"{name} logprobs"), requests)
    if profile.identities:
        setup = replace(setup, identities=tuple(ModelIdentity(f"{n:x}") for n in range(profile.identities)))
        requests = tuple(replace(each, request=_plain(each.request)) for each in requests)
    faults = _draw_faults(rng, setup, profile)
    others = (*draw_handoffs(name, setup, profile, FIRST_S), *draw_rolling(name, setup, profile, FIRST_S))
    if others:
        faults = tuple(sorted((*faults, *others), key=lambda fault: fault.at))
    return Plot(
        name,
        setup,
        requests,
        faults,
        check_every=rng.choice(profile.check_every),
        warm_up_s=FIRST_S,
        ends_early=rng.random() < EARLY,
    )


def _draw_setup(rng: random.Random, profile: Profile) -> RingSetup:
    drafts = rng.choice(profile.drafts)
    num_schedulers = rng.choice(profile.schedulers)
    setup = RingSetup(
        num_workers=rng.choice(profile.workers),
        num_frontends=rng.choice(profile.frontends),
        num_schedulers=num_schedulers,
        has_lease=num_schedulers > 1,
        lease_runs_out=rng.random() < profile.stores,
        with_relay=rng.random() < profile.relays,
        num_blocks=rng.choice(profile.blocks),
        block_size=rng.choice((2, 4)),
        num_slots=rng.choice((6, 12)),
        vocab_size=1000,
        max_draft_tokens=drafts,
        acceptance=rng.choice((0.0, 0.6, 1.0)),
        num_host_blocks=rng.choice((0, 0, 4, 40)),
        runs_ahead=not drafts and rng.random() < 0.3,
        step_s=rng.choice(((0.002, 0.03), (0.01, 0.05), (0.03, 0.12))),
        compile_s=rng.choice((0.01, 0.3)),
        grammar_failures=rng.choice((0.0, 0.0, 0.3)),
        copy_s=rng.choice((0.0, 0.05, 0.5)),
        copy_failures=rng.choice((0.0, 0.0, 0.3)) if profile.faults[1] else 0.0,
        guardians=rng.choice((0.0, 0.5, 1.0)),
        restart_s=rng.choice(((0.05, 0.3), (0.5, 3.0))),
        tenants=rng.choice(TENANTS) if rng.random() < profile.limits else "",
        part_bytes=rng.choice((0, 0, 0, 100)),
    )
    scheduler = _draw_scheduler(rng, setup) | dict(profile.scheduler)
    if setup.tenants == TENANTS[0]:
        scheduler["max_waiting_bytes"] = SMALL_BYTES
    if profile.is_slow:
        setup = replace(setup, step_s=(0.03, 0.12))
    worker = {
        "frontend_timeout_s": rng.choice((1.0, 3.0, 30.0)) if profile.faults[1] else 30.0,
        "drain_s": rng.choice((0.0, 0.0, 2.0)),
        "step_timeout_s": rng.choice((5.0, 120.0)),
    } | dict(profile.worker)
    frontend = {"max_backlog_tokens": rng.choice((3, 8, 512)), "lost_scheduler_s": rng.choice((4.0, 60.0))}
    return replace(setup, scheduler=scheduler, worker=worker, frontend=frontend)


def _draw_scheduler(rng: random.Random, setup: RingSetup) -> dict[str, object]:
    seqs, width = rng.choice((2, 4, 6)), 1 + setup.max_draft_tokens
    policy = rng.choice(("fcfs", "priority", "fair", "priority+fair", "priority+deadline", "deadline"))
    return {
        "max_num_seqs": seqs,
        "max_num_batched_tokens": rng.choice((seqs * width, 16 + seqs * width, 200)),
        "long_prefill_token_threshold": rng.choice((0, 0, 5)),
        "max_inflight_steps": rng.choice((1, 2, 2, 4)),
        "num_speculative_tokens": setup.max_draft_tokens,
        "watermark_blocks_per_seq": rng.choice((0, 1, 2)),
        "enable_prefix_caching": rng.random() < 0.85,
        "worker_grace_s": rng.choice((1.0, 2.0, 10.0)),
        "no_worker_grace_s": rng.choice((5.0, 30.0)),
        "frontend_grace_s": rng.choice((1.0, 3.0, 10.0)),
        "start_grace_s": rng.choice((0.5, 1.0, 5.0)),
        "policy": policy,
        "ttft_targets": "0:50,1:500",
        "lower_class_prefill_tokens": rng.choice((0, 3)) if "priority" in policy else 0,
        "aging_s": rng.choice((0.0, 0.1, 60.0)),
        "side_copy_blocks": rng.choice((0, 1, 2, 32)),
        "max_waiting": rng.choice((3, 100_000, 100_000, 100_000)),
    }


# -- requests --


def _draw_requests(rng: random.Random, setup: RingSetup, profile: Profile) -> tuple[Planned, ...]:
    prefixes = [tuple(rng.randrange(900) for _ in range(24)) for _ in range(2)]
    planned = []
    for number in range(rng.randint(*profile.requests)):
        request = _draw_request(rng, setup, prefixes, f"q{number}")
        if profile.again and planned and rng.random() < profile.again:
            request = replace(request, prompt=rng.choice(planned).request.prompt)
        if profile.is_slow and (profile.long == 1.0 or rng.random() < profile.long):
            request = replace(request, max_tokens=40, stop_token_ids=(), leaves_after_s=None)
        at = FIRST_S + rng.uniform(0, profile.spread_s)
        planned.append(Planned(at, rng.randrange(setup.num_frontends), request))
    if rng.random() < 0.3:
        at = FIRST_S + rng.uniform(0, 1.0)
        for number in range(rng.randint(2, 6)):
            own = tuple(rng.randrange(900) for _ in range(rng.choice((0, 0, 3))))
            request = RingRequest(
                f"crowd{number}", (prefixes[0] + own)[: setup.limit - 1], rng.randint(1, 10)
            )
            planned.append(Planned(at + rng.choice((0.0, 0.0, 0.005)), 0, request))
    if rng.random() < profile.odd:
        planned += _draw_odd(rng, setup, profile, prefixes[0])
    return tuple(planned)


def _with_forms(rng: random.Random, planned: tuple[Planned, ...], share: float) -> tuple[Planned, ...]:
    """The same, but that a share of the requests that generate follow a form."""
    return tuple(
        replace(each, request=replace(each.request, rule=_draw_rule(rng)))
        if not each.request.pooling and rng.random() < share
        else each
        for each in planned
    )


def _draw_rule(rng: random.Random) -> Rule:
    most_masks = rng.randint(1, 30) if rng.random() < 0.8 else 0
    return Rule(rng.choice((2, 3)), rng.randint(1, 60), most_masks)


def _plain(request: RingRequest) -> RingRequest:
    """The same without what makes another token of the model's."""
    return replace(request, pooling="", rule=None, never_repeats=False)


def _draw_odd(
    rng: random.Random, setup: RingSetup, profile: Profile, prefix: tuple[int, ...]
) -> list[Planned]:
    """Requests that nobody can serve: one that kills, one that fails, or some without numbers."""
    kind = rng.choice(profile.odd_kinds)
    at = FIRST_S + rng.uniform(0, 1.0)
    if kind == "poison":
        return [Planned(at, 0, RingRequest("odd", (POISON, *prefix[:3]), 5, is_poison=True))]
    if kind == "failing":
        return [Planned(at, 0, RingRequest("odd", (FAILING, *prefix[:3]), 5, fails=True))]
    planned = []
    for number in range(rng.randint(1, 4)):
        prompt = (*prefix[: rng.randrange(0, 20)], NAN, *prefix[:3])[: setup.limit - 1]
        request = RingRequest(f"nan{number}", prompt, rng.randint(1, 10), is_nan=NAN in prompt)
        planned.append(Planned(at + rng.uniform(0, 0.5), 0, request))
    return planned


def _draw_request(
    rng: random.Random, setup: RingSetup, prefixes: list[tuple[int, ...]], name: str
) -> RingRequest:
    shared = rng.choice(prefixes)[: rng.randrange(0, 25)]
    own = tuple(rng.randrange(900) for _ in range(rng.randint(1, 15)))
    request = RingRequest(
        name,
        (shared + own)[: setup.limit - 1],
        rng.choice((rng.randint(1, 12), rng.randint(1, 12), rng.randint(8, 40))),
        seed=rng.randrange(1000),
        priority=rng.randrange(3),
        tenant=rng.choice("ab"),
        think_s=rng.choice((0.0, 0.0, 0.0, 0.05, 0.3)),
        leaves_after_s=rng.uniform(0, 1.0) if rng.random() < 0.1 else None,
    )
    kind = rng.random()
    if kind < 0.15:
        return replace(request, pooling=rng.choice(("mean", "last", "cls")))
    if kind < 0.35:
        request = replace(request, rule=Rule(rng.choice((2, 3)), rng.randint(1, 30)))
    elif kind < 0.45:
        request = replace(request, never_repeats=True)
    if rng.random() < 0.3:
        request = replace(request, is_drawn=True)
    if rng.random() < 0.15:
        request = replace(request, stop_token_ids=tuple(rng.randrange(1000) for _ in range(150)))
    if rng.random() < 0.1:
        request = replace(request, stop_after=rng.randint(1, 15))
    return request


# -- faults --

_Draw = Callable[[random.Random, RingSetup], Fault]


def _any_node(rng: random.Random, setup: RingSetup) -> str:
    names = [f"w{n}" for n in range(setup.num_workers)] * 2
    names += [f"s{n}" for n in range(setup.num_schedulers)] * 2
    names += [f"f{n}" for n in range(setup.num_frontends)]
    return rng.choice([*names, *(["r0"] if setup.with_relay else [])])


def _worker(rng: random.Random, setup: RingSetup) -> str:
    return f"w{rng.randrange(setup.num_workers)}"


def _at(rng: random.Random) -> float:
    return FIRST_S + rng.uniform(0.0, 1.5)


def _away_s(rng: random.Random) -> float:
    """For how long something is away: mostly short, sometimes beyond every grace."""
    return rng.choice((rng.uniform(0.01, 1.0), rng.uniform(0.5, 4.0), rng.uniform(3.0, 15.0)))


def _of_node(kind: str) -> _Draw:
    return lambda rng, setup: Fault(_at(rng), kind, (_any_node(rng, setup),), _away_s(rng))


def _of_pair(kind: str, size: float = 0.0) -> _Draw:
    return lambda rng, setup: Fault(_at(rng), kind, draw_path(rng, setup), _away_s(rng), size * rng.random())


def _of_worker(kind: str, sizes: tuple[float, ...] = (0.0,)) -> _Draw:
    return lambda rng, setup: Fault(_at(rng), kind, (_worker(rng, setup),), _away_s(rng), rng.choice(sizes))


DRAWS: dict[str, _Draw] = {
    "kill": _of_node("kill"),
    "terminate": _of_node("terminate"),
    "restart_scheduler": lambda rng, setup: Fault(_at(rng), "kill", ("s0",), rng.uniform(0.1, 8.0)),
    "restart_frontend": lambda rng, setup: Fault(
        _at(rng), "kill", (f"f{rng.randrange(setup.num_frontends)}",), rng.uniform(0.1, 3.0)
    ),
    "part_worker": lambda rng, setup: Fault(
        _at(rng) + rng.uniform(0.0, 2.5), "cut", (_worker(rng, setup), "s0"), rng.uniform(2.0, 6.0)
    ),
    "late_word": lambda rng, setup: Fault(
        _at(rng), "late_word", (_worker(rng, setup),), rng.uniform(1.0, 1.4), 0.6
    ),
    "power_off": _of_node("power_off"),
    "freeze": _of_node("freeze"),
    "set_clock": lambda rng, setup: Fault(
        _at(rng), "set_clock", (_any_node(rng, setup),), 0.0, rng.choice((-86400.0, -5.0, 3600.0))
    ),
    "cut": _of_pair("cut"),
    "cut_one_way": _of_pair("cut_one_way"),
    "isolate": _of_node("isolate"),
    "slow": _of_pair("slow", 0.3),
    "reset_links": _of_pair("reset_links"),
    "share_lease": _of_worker("share_lease"),
    "hang": _of_worker("hang"),
    "slow_steps": _of_worker("slow_steps", (3.0, 20.0)),
    "lose_device": _of_worker("lose_device"),
    "duplicate": _of_worker("duplicate"),
    "firewall": lambda rng, setup: Fault(
        0.0, "firewall", (f"f{rng.randrange(setup.num_frontends)}", _worker(rng, setup))
    ),
    "refuse_hellos": lambda rng, setup: Fault(
        rng.choice((0.0, _at(rng))), "refuse_hellos", (), _away_s(rng), rng.choice((0.5, 1.0))
    ),
    "fail_store": lambda rng, setup: Fault(_at(rng), "fail_store", (), _away_s(rng), rng.choice((0.3, 1.0))),
    "slow_store": lambda rng, setup: Fault(_at(rng), "slow_store", (), _away_s(rng), rng.uniform(0.1, 1.5)),
    "store_clock": lambda rng, setup: Fault(_at(rng), "store_clock", (), 0.0, rng.uniform(1.0, 10.0)),
    "drain": _of_worker("drain"),
    "flip_role": _of_worker("flip_role", (1.0, 2.0, 2.0, 3.0, 3.0)),
    "reset_cache": _of_worker("reset_cache"),
    "strike_pulls": lambda rng, setup: Fault(0.0, "strike_pulls", (), 30.0, rng.choice((0.3, 1.0))),
    "safe_mode": _of_worker("safe_mode", (-1.0, 0.0, 1.0)),
}
SPECIAL = {"flip_role", "restart_scheduler", "restart_frontend", "part_worker", "late_word", "strike_pulls"}
"""Kinds that profiles name: others have them among their own."""
WEIGHTS = {"kill": 5, "terminate": 3, "freeze": 3, "cut": 3, "reset_links": 3}
"""Of the kinds that are drawn more often than once."""


def _draw_faults(rng: random.Random, setup: RingSetup, profile: Profile) -> tuple[Fault, ...]:
    kinds = profile.kinds or tuple(kind for kind in DRAWS if kind not in SPECIAL)
    weighted = [kind for kind in kinds for _ in range(WEIGHTS.get(kind, 1))]
    count = rng.randint(*profile.faults)
    return tuple(sorted((DRAWS[rng.choice(weighted)](rng, setup) for _ in range(count)), key=lambda f: f.at))
