"""The kinds of scenarios by name."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.ring.scenario import ANY, CALM, Profile

PATIENT = (("start_grace_s", 5.0), ("worker_grace_s", 10.0), ("frontend_grace_s", 10.0))
ONE = Profile("one", schedulers=(1,))
TWO = Profile("two", schedulers=(2,))
ALONE = Profile(
    "alone",
    faults=(1, 2),
    kinds=("restart_scheduler",),
    schedulers=(1,),
    relays=0.0,
    odd=0.0,
    is_slow=True,
    scheduler=PATIENT,
)
STOPPED = Profile("stopped", faults=(1, 3), kinds=("freeze",), is_slow=True, scheduler=PATIENT, odd=0.0)
REACH = Profile(
    "reach", faults=(1, 3), kinds=("cut", "cut_one_way", "kill", "firewall"), frontends=(1, 2), odd=0.0
)
POISON = Profile("poison", faults=(0, 1), odd=1.0, odd_kinds=("poison", "failing"), workers=(2, 3))
NAN = Profile("nan", faults=(0, 1), odd=1.0, odd_kinds=("nan",))
TWINS = Profile(
    "twins", faults=(1, 3), kinds=("duplicate", "duplicate", "kill", "reset_links"), schedulers=(1,)
)
LIMITS = Profile("limits", faults=(0, 2), limits=1.0, requests=(8, 16), odd=0.0)
REFUSED = Profile(
    "refused", faults=(1, 3), kinds=("refuse_hellos", "restart_scheduler", "reset_links"), relays=0.5, odd=0.0
)
STORE = Profile(
    "store",
    faults=(1, 3),
    kinds=("fail_store", "slow_store", "store_clock", "share_lease", "kill", "freeze"),
    schedulers=(2, 3),
    stores=1.0,
    odd=0.0,
)
APART = Profile(
    "apart",
    faults=(1, 2),
    kinds=("part_worker",),
    requests=(16, 26),
    schedulers=(1,),
    workers=(1,),
    frontends=(1,),
    relays=0.0,
    odd=0.0,
    spread_s=5.0,
    is_slow=True,
    long=0.7,
    again=0.6,
    blocks=(24, 32),
    scheduler=(
        *PATIENT,
        ("enable_prefix_caching", True),
        ("max_num_seqs", 3),
        ("max_num_batched_tokens", 200),
    ),
)
LATE = Profile(
    "late",
    faults=(1, 3),
    kinds=("late_word",),
    requests=(12, 20),
    schedulers=(1,),
    workers=(1, 2),
    relays=0.0,
    odd=0.0,
    spread_s=2.0,
)
GONE = Profile(
    "gone",
    faults=(2, 4),
    kinds=("restart_frontend", "part_worker"),
    frontends=(2,),
    schedulers=(1,),
    relays=0.0,
    odd=0.0,
    is_slow=True,
    scheduler=(("frontend_grace_s", 1.0),),
)
WALLED = Profile("walled", faults=(1, 2), kinds=("firewall",), workers=(2, 3), odd=0.0)
PRESSED = Profile(
    "pressed",
    faults=(1, 3),
    kinds=("kill",),
    requests=(10, 18),
    schedulers=(1,),
    limits=1.0,
    odd=0.0,
    is_slow=True,
)
IDENTITIES = Profile(
    "identities",
    faults=(1, 3),
    kinds=("kill", "terminate", "drain", "restart_scheduler", "reset_links"),
    schedulers=(1,),
    workers=(2, 3),
    odd=0.0,
    spread_s=2.0,
    is_slow=True,
    again=0.5,
    identities=2,
)
BURSTS = Profile(
    "bursts",
    faults=(0, 2),
    workers=(1, 1, 2),
    schedulers=(1,),
    drafts=(0,),
    odd=0.0,
    requests=(10, 20),
    spread_s=4.0,
    is_slow=True,
    blocks=(64,),
    scheduler=(("decode_burst_ms", 2000.0), ("max_num_batched_tokens", 200)),
)
SLOW_MASKS = (0.02, 0.2, 1.0)
FORMS = Profile(
    "forms",
    faults=(1, 3),
    kinds=("kill", "kill", "kill", "restart_scheduler"),
    workers=(2, 3),
    odd=0.0,
    is_slow=True,
    forms=0.8,
    masks=SLOW_MASKS,
)
FORMS_AND_DRAFTS = replace(FORMS, name="forms and drafts", drafts=(1, 2, 4))
FORMS_ALONE = replace(ALONE, name="forms alone", forms=0.7, masks=SLOW_MASKS)
FORMS_AND_STATES = replace(FORMS_AND_DRAFTS, name="forms, drafts and states", has_states=True)
FORMS_AND_LANES = replace(FORMS_AND_DRAFTS, name="forms, drafts and lanes", lanes=(1, 2, 4))
WINDOWS = Profile("windows", requests=(6, 16), again=0.4, has_groups=True)
WINDOWS_APART = replace(APART, name="windows apart", has_groups=True)
WINDOWS_NAN = replace(NAN, name="windows nan", requests=(8, 16), again=0.6, has_groups=True)
STATES = Profile("states", requests=(6, 16), again=0.4, drafts=(0,), has_states=True)
STATES_APART = replace(APART, name="states apart", drafts=(0,), has_states=True)
STATES_NAN = replace(NAN, name="states nan", requests=(8, 16), again=0.6, drafts=(0,), has_states=True)
STATES_AND_WINDOWS = replace(STATES, name="states and windows", has_groups=True)
STATES_AND_DRAFTS = replace(STATES, name="states and drafts", drafts=(1, 2, 4))
STATES_WINDOWS_DRAFTS = replace(STATES_AND_DRAFTS, name="states, windows and drafts", has_groups=True)
WINDOWS_TIER = replace(WINDOWS, name="windows and tier", has_host_tier=True)
WINDOWS_NAN_TIER = replace(WINDOWS_NAN, name="windows nan and tier", has_host_tier=True)
STATES_TIER = replace(STATES, name="states and tier", has_host_tier=True)
STATES_APART_TIER = replace(STATES_APART, name="states apart and tier", has_host_tier=True)
STATES_NAN_TIER = replace(STATES_NAN, name="states nan and tier", has_host_tier=True)
ALL_AND_TIER = replace(STATES_WINDOWS_DRAFTS, name="states, windows, drafts and tier", has_host_tier=True)
AIMED = (
    "kill",
    "kill",
    "terminate",
    "restart_scheduler",
    "restart_scheduler",
    "cut_peers",
    "cut_peers",
    "cut_peers_one_way",
    "reset_peers",
    "reset_peers",
    "slow_peers",
    "part_worker",
    "part_worker",
    "reset_worker",
    "reset_worker",
    "freeze",
    "drain",
    "reset_cache",
    "safe_mode",
    "slow_steps",
)
"""What goes wrong while requests are handed over."""
HANDOFF = Profile(
    "handoff",
    faults=(0, 0),
    requests=(6, 14),
    workers=(2, 2, 3),
    schedulers=(1, 1, 1, 2),
    blocks=(24, 48, 96),
    odd=0.0,
    spread_s=1.5,
    is_slow=True,
    long=1.0,
    again=0.3,
    handoffs=(20, 50),
    aimed=(3, 8),
    aimed_kinds=AIMED,
)
HANDOFF_CALM = replace(HANDOFF, name="handoff calm", blocks=(48, 96), schedulers=(1,), aimed=(0, 0))
HANDOFF_DRAFTS = replace(HANDOFF, name="handoff drafts", drafts=(1, 2, 4))
HANDOFF_WINDOWS = replace(HANDOFF, name="handoff windows", has_groups=True)
HANDOFF_STATES = replace(HANDOFF, name="handoff states", drafts=(0,), has_states=True)
HANDOFF_ALL = replace(
    HANDOFF_DRAFTS,
    name="handoff states, windows, drafts and tier",
    has_groups=True,
    has_states=True,
    has_host_tier=True,
)
HANDOFF_NAN = replace(
    HANDOFF, name="handoff nan", odd=1.0, odd_kinds=("nan",), requests=(8, 16), again=0.6, aimed=(0, 1)
)
FORMS_HANDOFF = replace(HANDOFF_DRAFTS, name="forms handoff", forms=0.7, masks=SLOW_MASKS)
DRAINS = replace(
    HANDOFF,
    name="drains",
    workers=(2, 3, 3),
    handoffs=(0, 3),
    aimed=(0, 2),
    faults=(1, 4),
    kinds=("drain", "drain", "drain", "kill", "restart_scheduler"),
)
ROLLING = replace(
    HANDOFF,
    name="rolling",
    workers=(2, 3, 3),
    schedulers=(1,),
    requests=(8, 18),
    spread_s=4.0,
    handoffs=(0, 3),
    aimed=(0, 1),
    is_rolling=True,
    worker=(("drain_s", 20.0),),
)
ROLES = replace(
    HANDOFF,
    name="roles",
    workers=(2, 3, 3),
    blocks=(48, 96),
    handoffs=(0, 3),
    aimed=(0, 2),
    faults=(10, 20),
    kinds=(*("flip_role",) * 30, "kill", "drain"),
    scheduler=(("prefill_hand_off", "always"),),
)
PULLS = replace(
    HANDOFF,
    name="pulls",
    requests=(12, 24),
    blocks=(32, 48, 96),
    spread_s=3.0,
    again=0.8,
    long=0.3,
    handoffs=(0, 2),
    aimed=(0, 2),
    faults=(2, 6),
    kinds=(
        "kill",
        "terminate",
        "drain",
        "drain",
        "cut",
        "cut_one_way",
        "reset_links",
        "reset_links",
        "restart_scheduler",
        "slow",
        "freeze",
        "reset_cache",
    ),
    scheduler=(("enable_prefix_caching", True), ("affinity_wait_ms", 1.0), ("affinity_min_tokens", 1)),
)
PULLS_STRUCK = replace(
    PULLS,
    name="pulls that are struck",
    requests=(16, 28),
    faults=(1, 2),
    kinds=("strike_pulls",),
    handoffs=(1, 2),
    schedulers=(1,),
)
PULLS_CALM = replace(PULLS, name="pulls calm", schedulers=(1,), faults=(0, 1), kinds=("drain",), aimed=(0, 0))
PULLS_WINDOWS = replace(PULLS, name="pulls, windows and tier", has_groups=True, has_host_tier=True)
PULLS_NAN = replace(
    PULLS, name="pulls nan", faults=(0, 1), kinds=("drain",), odd=1.0, odd_kinds=("nan",), aimed=(0, 0)
)
SILENT = replace(
    HANDOFF,
    name="silent",
    frontends=(1, 2),
    handoffs=(5, 25),
    aimed=(0, 0),
    faults=(1, 3),
    kinds=("cut", "cut_one_way"),
)
SILENT_PULLS = replace(
    PULLS, name="silent pulls", frontends=(1, 2), aimed=(0, 0), faults=(1, 3), kinds=("cut", "cut_one_way")
)
LANES = Profile("lanes", requests=(6, 16), lanes=(1, 2, 4), blocks=(16, 24, 48, 96))
LANES_ALONE = replace(ALONE, name="lanes alone", lanes=(2, 4))
LANES_NAN = replace(NAN, name="lanes nan", requests=(8, 16), again=0.6, lanes=(2, 4))
LANES_BURSTS = replace(BURSTS, name="lanes bursts", lanes=(2, 4))
LANES_AND_WINDOWS = replace(WINDOWS, name="lanes and windows", has_host_tier=True, lanes=(2, 4))
LANES_AND_STATES = replace(
    STATES_AND_DRAFTS, name="lanes, states and drafts", has_host_tier=True, lanes=(2, 4)
)
LANES_HANDOFF = replace(HANDOFF_DRAFTS, name="lanes handoff", drafts=(0, 0, 2), lanes=(1, 2, 4))
_LANES = (
    LANES,
    LANES_ALONE,
    LANES_NAN,
    LANES_BURSTS,
    LANES_AND_WINDOWS,
    LANES_AND_STATES,
    LANES_HANDOFF,
)
_HANDOFFS = (
    ROLES,
    HANDOFF,
    HANDOFF_CALM,
    HANDOFF_DRAFTS,
    HANDOFF_WINDOWS,
    HANDOFF_STATES,
    HANDOFF_ALL,
    HANDOFF_NAN,
    DRAINS,
    ROLLING,
    PULLS,
    PULLS_CALM,
    PULLS_STRUCK,
    PULLS_WINDOWS,
    PULLS_NAN,
    SILENT,
    SILENT_PULLS,
)
_LINKS = (ALONE, APART, STOPPED, REACH, WALLED, TWINS, REFUSED, GONE, LATE, STORE)
_ALL = (
    ANY,
    CALM,
    ONE,
    TWO,
    POISON,
    NAN,
    LIMITS,
    PRESSED,
    BURSTS,
    FORMS,
    FORMS_AND_DRAFTS,
    FORMS_ALONE,
    FORMS_AND_STATES,
    FORMS_AND_LANES,
    FORMS_HANDOFF,
    IDENTITIES,
    WINDOWS,
    WINDOWS_APART,
    WINDOWS_NAN,
    STATES,
    STATES_APART,
    STATES_NAN,
    STATES_AND_WINDOWS,
    STATES_AND_DRAFTS,
    STATES_WINDOWS_DRAFTS,
    WINDOWS_TIER,
    WINDOWS_NAN_TIER,
    STATES_TIER,
    STATES_APART_TIER,
    STATES_NAN_TIER,
    ALL_AND_TIER,
    *_HANDOFFS,
    *_LANES,
    *_LINKS,
)
PROFILES: dict[str, Profile] = {profile.name: profile for profile in _ALL}
