"""What the graph of imports does not hold, as tables: roots of services, files besides Python, tests of whole services.

Patterns are those of fnmatch, in which `*` crosses `/`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatch

ROOTS = (
    "signalbox/__main__.py",
    "signalbox/cli/main.py",
    "*_svc/__main__.py",
    "*_svc/server.py",
    "frontend_svc/services.py",
)
"""Files that wire a whole service, or the whole command line, together. A test outside the mirror of the service (its
folder under tests/) that starts one is not selected by all that the root reaches, but by its row of SUBJECTS."""
ALWAYS = ("tests/test_*.py", "tests/contract/test_fields.py")
"""Tests that read the whole tree, and cost little."""
EVERYTHING = "*"
NEAREST = "its package"
"""The Python files of the nearest folder above that has some."""
DATA: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("protos/*.proto", ("signalbox/{folder}/{stem}_pb2.py", "protos/generate.py")),
    ("signalbox/demo_model/*", (EVERYTHING,)),
    ("k8s/*", ("tests/k8s/*", "tests/monitoring/*")),
    ("Dockerfile", ("tests/k8s/*",)),
    (".dockerignore", ("tests/k8s/*",)),
    ("tests/public_names.txt", ()),
    ("tests/*", (NEAREST,)),
    ("frontend_svc/*", (NEAREST,)),
    ("scheduler_svc/*", (NEAREST,)),
    ("worker_svc/*", (NEAREST,)),
    ("signalbox/*", (NEAREST,)),
    ("docs/*", ()),
    ("*.md", ()),
    ("LICENSE", ()),
    (".gitignore", ()),
    (".ci/*", ()),
)
"""Files besides Python, and the files that stand for them; the first row that fits counts. A file that a source names
by its path reaches that source as well. A file without a row (pyproject.toml, Makefile, locks) reaches everything."""
SUBJECTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("tests/chaos/*", ("signalbox/links/*", "*_svc/links/*", "*/liveness/*", "*/recovery/*", "*/handoff/*")),
    ("tests/contract/agents/*", ("frontend_svc/api/responses/*", "frontend_svc/api/anthropic/*")),
    ("tests/contract/sdks/*", ("frontend_svc/api/responses/*", "frontend_svc/api/anthropic/*")),
    ("tests/contract/test_agents.py", ("frontend_svc/api/responses/*", "frontend_svc/api/anthropic/*")),
    ("tests/contract/test_api_description.py", ("frontend_svc/api/openapi/*",)),
    ("tests/contract/test_batches.py", ("frontend_svc/batches/*", "frontend_svc/api/batches/*")),
    ("tests/contract/test_fuzz.py", ("frontend_svc/api/http/*", "frontend_svc/requests/*")),
    ("tests/contract/test_guidellm.py", ("frontend_svc/api/openai/*",)),
    ("tests/contract/test_hostile_clients.py", ("frontend_svc/api/http/*", "frontend_svc/api/grpc/*")),
    ("tests/contract/test_hostile_headers.py", ("frontend_svc/guard/*", "frontend_svc/api/grpc/*")),
    (
        "tests/contract/test_hostile_*.py",
        (
            "signalbox/links/*",
            "*_svc/links/*",
            "worker_svc/relay/*",
            "*/servicer.py",
            "signalbox/runtime/logs.py",
        ),
    ),
    ("tests/contract/test_instances.py", ("*_svc/services.py", "*_svc/server.py")),
    ("tests/contract/test_messages.py", ("signalbox/v1/*", "*_svc/links/*")),
    ("tests/contract/test_openai_sdk.py", ("frontend_svc/api/openai/*",)),
    (
        "tests/contract/test_rerank.py",
        ("frontend_svc/api/pooling/*", "*/pooling/*", "worker_svc/runner/encoder/*"),
    ),
    ("tests/contract/test_smg.py", ("frontend_svc/api/vllm/*",)),
    ("tests/contract/test_two_releases.py", ("signalbox/v1/*", "*_svc/links/*")),
    ("tests/contract/test_vllm_router.py", ("frontend_svc/api/vllm/*",)),
    ("tests/e2e/outputs/test_language.py", ("frontend_svc/text/parsing/*", "worker_svc/grammar/*")),
    ("tests/e2e/outputs/test_ranks.py", ("worker_svc/ranks/*",)),
    ("tests/e2e/outputs/test_real_model.py", ("signalbox/cli/models/*", "worker_svc/gguf/*", "*/weights/*")),
    ("tests/e2e/outputs/test_speculation.py", ("worker_svc/core/drafts/*", "worker_svc/runner/draft*")),
    ("tests/e2e/outputs/test_structured_output.py", ("*/grammar/*", "frontend_svc/grammars/*")),
    ("tests/e2e/outputs/*", ("worker_svc/runner/*", "worker_svc/core/worker_core.py")),
    ("tests/e2e/test_api_keys.py", ("frontend_svc/access/*", "signalbox/api_keys.py", "signalbox/cli/*key*")),
    ("tests/e2e/test_bench_*.py", ("signalbox/benchmarks/load/*", "signalbox/benchmarks/serve/*")),
    ("tests/e2e/test_calls.py", ("frontend_svc/grammars/*", "frontend_svc/text/parsing/tools/*")),
    ("tests/e2e/test_docs_browser.py", ("frontend_svc/api/openapi/*", "frontend_svc/api/page/*")),
    ("tests/e2e/test_*_browser.py", ("frontend_svc/api/page/*", "signalbox/board/*")),
    ("tests/e2e/test_explanations.py", ("*/explain/*", "signalbox/cli/*explanation*")),
    ("tests/e2e/test_foreign_machine.py", ("signalbox/runtime/*", "signalbox/cli/ring/*")),
    ("tests/e2e/test_ring.py", ("signalbox/cli/commands/service/*", "frontend_svc/api/grpc/*")),
    ("tests/e2e/test_safe_mode.py", ("scheduler_svc/admin/*", "signalbox/cli/commands/service/*")),
    ("tests/e2e/test_up.py", ("signalbox/cli/ring/*", "signalbox/cli/commands/machine/*")),
    ("tests/e2e/faults/test_disk_tier.py", ("*/disk/*",)),
    (
        "tests/e2e/faults/test_drain.py",
        ("*/liveness/*", "*/moves/*", "signalbox/cli/commands/service/drain.py"),
    ),
    ("tests/e2e/faults/test_frontends.py", ("frontend_svc/api/http/server.py", "signalbox/cli/ring/*")),
    ("tests/e2e/faults/test_identities.py", ("*/identity*", "worker_svc/weights/*")),
    ("tests/e2e/faults/test_numbers.py", ("worker_svc/core/faults/*", "worker_svc/runner/sampling/*")),
    ("tests/e2e/faults/test_poison.py", ("*/faults/*", "*/liveness/*", "worker_svc/guardian/*")),
    ("tests/e2e/faults/test_hangs.py", ("*/faults/*", "*/liveness/*", "worker_svc/guardian/*")),
    ("tests/e2e/faults/test_pulls.py", ("*/pulls/*", "worker_svc/transfer/*")),
    ("tests/e2e/faults/test_relay.py", ("worker_svc/relay/*",)),
    ("tests/e2e/faults/test_shared_limits.py", ("*/budgets/*", "*/budgets.py", "frontend_svc/access/*")),
    ("tests/e2e/faults/test_sim_failures.py", ("worker_svc/core/faults/*", "worker_svc/runner/sim/*")),
    (
        "tests/e2e/faults/test_standby.py",
        ("scheduler_svc/lease/*", "*/recovery/*", "signalbox/links/leader*"),
    ),
    (
        "tests/e2e/faults/test_swapping.py",
        ("scheduler_svc/core/state/blocks/*", "scheduler_svc/core/parts/fetch/*"),
    ),
    (
        "tests/e2e/faults/test_tls*.py",
        (
            "signalbox/links/tls/*",
            "*/*tls*",
            "signalbox/cli/http_client.py",
            "*/servicer.py",
            "signalbox/links/rpc.py",
        ),
    ),
    (
        "tests/frontend_svc/access/test_keys.py",
        ("frontend_svc/access/*", "signalbox/cli/commands/machine/key.py", "signalbox/api_keys.py"),
    ),
    (
        "tests/frontend_svc/access/test_shared_limits.py",
        ("frontend_svc/access/*", "scheduler_svc/*/budgets*"),
    ),
    (
        "tests/frontend_svc/api/bounds/test_handshakes.py",
        ("frontend_svc/api/http/*", "signalbox/links/tls/*"),
    ),
    (
        "tests/frontend_svc/api/test_client_certificates.py",
        ("frontend_svc/api/http/*", "signalbox/links/tls/*", "signalbox/cli/http_client.py"),
    ),
    (
        "tests/k8s/*",
        ("*_svc/config.py", "worker_svc/relay/config.py", "signalbox/runtime/*", "signalbox/cli/*certs*"),
    ),
    (
        "tests/loop_watch/*",
        (
            "scheduler_svc/step_loop.py",
            "scheduler_svc/core/state/blocks/*",
            "frontend_svc/api/*",
            "*_svc/links/*",
        ),
    ),
    ("tests/monitoring/*", ("*/metrics.py", "signalbox/telemetry/*")),
    ("tests/simulation/*", ("frontend_svc/links/*", "frontend_svc/requests/sessions/*")),
    (
        "tests/telemetry/*",
        ("signalbox/telemetry/*", "*/metrics.py", "*/spans.py", "signalbox/runtime/logs.py"),
    ),
)
"""Tests of whole services, and the folders and files that each is about; the first row that fits counts. What a test
imports besides the root reaches it too. A row of a test in the mirror of a service says that it is dear, and that the
root counts for it as little as elsewhere."""
SMOKE = {
    "the demo model": "tests/e2e/test_ring.py::test_openai_chat_streams",
    "`signalbox up` and its proof": "tests/e2e/test_up.py::test_up_proves_itself_and_stops_cleanly",
    "the simulated model": "tests/e2e/faults/test_sim_failures.py::"
    "test_a_step_that_fails_as_a_whole_ends_its_requests_and_no_later_ones",
    "mutual TLS": "tests/e2e/faults/test_tls.py::test_it_serves_and_operators_see_it",
    "two frontends": "tests/e2e/faults/test_frontends.py::test_both_get_requests_and_all_stop",
    "a standby": "tests/e2e/faults/test_standby.py::test_a_ring_ends_when_both_schedulers_do",
    "a worker of two ranks": "tests/worker_svc/ranks/test_group_tokens.py::test_each_rank_has_its_part_alone",
    "a relay": "tests/e2e/faults/test_relay.py::test_two_workers_behind_a_relay_serve_requests",
    "a virtual clock": "tests/simulation/test_ring.py::test_a_ring_of_every_profile",
}
"""A test of one ring of each kind, which always runs."""


def is_root(path: str) -> bool:
    """Whether a file wires a service together."""
    return _fits(path, ROOTS)


def is_always_run(test: str) -> bool:
    """Whether a test file reads the whole tree."""
    return _fits(test, ALWAYS)


def subjects_of(test: str) -> Sequence[str] | None:
    """Patterns of the files that a test of whole services is about; None: it has no row."""
    return next((files for pattern, files in SUBJECTS if fnmatch(test, pattern)), None)


def is_about(test: str, path: str) -> bool:
    """Whether the test is about the file `path`."""
    return _fits(path, subjects_of(test) or ())


def stand_ins(path: str, paths: frozenset[str]) -> frozenset[str] | None:
    """Files of `paths` that represent `path`, a file other than Python, in the graph. None: all of them."""
    for pattern, names in DATA:
        if fnmatch(path, pattern):
            found = [frozenset(_stand_in(path, name, paths)) for name in names]
            return None if EVERYTHING in names else frozenset().union(*found)
    return None


def _fits(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(path, pattern) for pattern in patterns)


def _stand_in(path: str, name: str, paths: frozenset[str]) -> Iterator[str]:
    *folders, file = path.split("/")
    if name == NEAREST:
        while folders:
            prefix = "/".join(folders) + "/"
            found = [other for other in paths if _is_python_in(other, prefix)]
            if found:
                yield from found
                return
            folders.pop()
    else:
        pattern = name.format(folder="/".join(folders[2:]) or "v1", stem=file.rpartition(".")[0])
        yield from (other for other in paths if fnmatch(other, pattern) and other.endswith(".py"))


def _is_python_in(path: str, prefix: str) -> bool:
    return path.startswith(prefix) and path.endswith(".py") and "/" not in path[len(prefix) :]
