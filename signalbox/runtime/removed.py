"""Public names that were removed. Their use is an error at start whose text names the replacement.

`docs/removed.md` lists the same names; `tests/test_removed.py` keeps table and document equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from signalbox.errors import StartupError

SERVICE_PREFIXES = ("SIGNALBOX_FRONTEND_", "SIGNALBOX_SCHEDULER_", "SIGNALBOX_WORKER_")
"""First parts of the environment variables of one service; the other services do not read them."""


@dataclass(frozen=True)
class Removal:
    """When a name was removed, and its replacement."""

    version: str
    """The first version without the name, such as 0.2."""
    instead: str
    """What to use or do instead; continues the sentence "was removed in version 0.2: "."""


REMOVED: Mapping[str, Removal] = {
    "SIGNALBOX_FRONTEND_MAX_BAD_WORDS": Removal("0.2", "leave it out: a request has at most 64 bad words"),
    "SIGNALBOX_FRONTEND_MAX_BAD_WORD_CHARS": Removal(
        "0.2", "leave it out: a bad word has at most 256 characters"
    ),
    "SIGNALBOX_FRONTEND_MAX_CHOICES": Removal("0.2", "leave it out: a call has at most 1024 choices"),
    "SIGNALBOX_FRONTEND_MAX_LOGIT_BIAS": Removal(
        "0.2", "leave it out: a request has at most 1024 tokens with a bias"
    ),
    "SIGNALBOX_FRONTEND_MAX_STOP_STRINGS": Removal(
        "0.2", "leave it out: a request has at most 16 stop strings"
    ),
    "SIGNALBOX_FRONTEND_MAX_STOP_STRING_CHARS": Removal(
        "0.2", "leave it out: a stop string has at most 256 characters"
    ),
    "SIGNALBOX_FRONTEND_MAX_STOP_TOKEN_IDS": Removal(
        "0.2", "leave it out: a request has at most 256 stop tokens"
    ),
    "SIGNALBOX_SCHEDULER_AFFINITY_MAX_SKIPS": Removal(
        "0.2", "leave it out, or set SIGNALBOX_SCHEDULER_AFFINITY_WAIT_MS; at most 16 steps leave a request"
    ),
    "SIGNALBOX_SCHEDULER_HANDOFF_BLOCKS_PER_S": Removal(
        "0.2", "leave it out: only rebalance and the prediction of roles used it"
    ),
    "SIGNALBOX_SCHEDULER_LEASE=etcd": Removal(
        "0.2", "use file:PATH on one host, or kubernetes:NAMESPACE/NAME"
    ),
    "SIGNALBOX_SCHEDULER_PLACEMENT_LOOKAHEAD": Removal(
        "0.2", "leave it out: a worker leaves at most 8 requests to others"
    ),
    "SIGNALBOX_SCHEDULER_PREFILL_HAND_OFF=conditional": Removal(
        "0.2", "use always, which is the default, or never"
    ),
    "SIGNALBOX_SCHEDULER_PREFILL_WAIT_S": Removal(
        "0.2", "leave it out: a prompt waits for workers of its role while they have room for it"
    ),
    "SIGNALBOX_SCHEDULER_REBALANCE": Removal(
        "0.2", "leave it out: requests of a slow worker move when workers that are well have room for them"
    ),
    "SIGNALBOX_SCHEDULER_REBALANCE_AFTER_S": Removal("0.2", "leave it out: only rebalance used it"),
    "SIGNALBOX_TRACE_DIR": Removal(
        "0.2", "send spans to a viewer: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT (docs/operations.md, Traces)"
    ),
    "SIGNALBOX_WORKER_SIM_ACCEPTANCE": Removal("0.2", "leave it out: 0.7 of the simulated drafts are right"),
    "SIGNALBOX_WORKER_SIM_CONTEXT_MS": Removal(
        "0.2", "use SIGNALBOX_WORKER_SIM_TOKEN_MS or SIGNALBOX_WORKER_SIM_BASE_MS"
    ),
    "SIGNALBOX_WORKER_SIM_LANES": Removal(
        "0.2", "use SIGNALBOX_WORKER_PIPELINE_PARALLEL with a model; the simulated model has one stage"
    ),
    "SIGNALBOX_WORKER_TRANSFER_CHANNELS=nixl": Removal("0.2", "use shared-memory or tcp"),
    "extra nixl": Removal("0.2", "the channels shared-memory and tcp need no extra"),
    "signalbox trace": Removal(
        "0.2", "send spans to a viewer: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT (docs/operations.md, Traces)"
    ),
    "signalbox up --trace": Removal(
        "0.2", "set OTEL_EXPORTER_OTLP_TRACES_ENDPOINT for it (docs/operations.md, Traces)"
    ),
    "trial of one sequence in 16 (CK8)": Removal(
        "0.2",
        "the end of a sequence goes last; that of its prompt with SIGNALBOX_WORKER_CHECKPOINTS_OF_PROMPTS_ONLY",
    ),
}
"""Removed names, sorted. The form of a name says what it was:

- `SIGNALBOX_WORKER_NUM_BLOCKS`: a setting, as variable and as flag of its service
- `SIGNALBOX_WORKER_RUNNER=sim`: a value of a setting; the setting's validator calls `refusal`
- `SIGNALBOX_ANYTHING`: an environment variable that all processes read
- `signalbox trace`, `signalbox bench scale`: a command
- `signalbox up --trace`: a flag of a command
- anything else, such as `extra nixl`: listed for readers only
"""


def refusal(name: str, shown: str | None = None) -> str | None:
    """The sentence that refuses `name`, or None if it was not removed. The sentence calls it `shown`, if given."""
    removal = REMOVED.get(name)
    if removal is None:
        return None
    return f"{shown or name} was removed in version {removal.version}: {removal.instead}"


def refuse_command(arguments: Iterable[str]) -> None:
    """Raises StartupError if the command line names a removed command. `arguments` do not include the program."""
    name = "signalbox"
    for word in arguments:
        name += f" {word}"
        if (sentence := refusal(name)) is not None:
            raise StartupError(sentence)


def refuse_settings(prefix: str, arguments: Iterable[str], environment: Iterable[str]) -> None:
    """Raises StartupError at the first removed flag among `arguments` or removed variable among the names in
    `environment`. `prefix` is that of the service's variables; those of other services are not looked at."""
    for argument in arguments:
        flag = argument.partition("=")[0]
        if not flag.startswith("--"):
            continue
        for name in (flag[2:], flag[2:].removeprefix("no-")):
            variable = prefix + name.replace("-", "_").upper()
            if (sentence := refusal(variable, f"{flag} (or {variable})")) is not None:
                raise StartupError(sentence)
    others = tuple(other for other in SERVICE_PREFIXES if other != prefix)
    for variable in sorted(environment):
        if variable.startswith(others):
            continue
        if (sentence := refusal(variable)) is not None:
            raise StartupError(sentence)
