"""Every thread, and every task of a service that outlives the call that starts it, is seen when an error ends it
(docs/liveness.md, LO1): those that `start_thread` does not start are listed here, with what sees their end."""

from __future__ import annotations

import ast
from pathlib import Path

from tools.packages import SERVICES
from tools.structure.sources import read_modules

ROOT = Path(__file__).resolve().parent.parent
STARTS = {"Thread", "Timer", "create_task", "ensure_future"}
SEEN = {
    "frontend_svc/api/http/call.py": "watches one call, which ends it",
    "frontend_svc/api/http/handshake.py": "one connection: what goes wrong closes it",
    "frontend_svc/api/http/server.py": "`Frontend.run` ends with it",
    "frontend_svc/api/page/board_stream.py": "catches all; boards are told, and it asks again",
    "frontend_svc/batches/batch_run.py": "awaited by the run, which fails its batch by name",
    "frontend_svc/batches/journal_writer.py": "whoever waits is told of any error, and the next write begins anew",
    "frontend_svc/batches/runner.py": "one looks and catches all; the others fail their batch by name",
    "frontend_svc/guard/guard.py": "catches all in each look; what it trims is tried again",
    "frontend_svc/links/worker_links.py": "an error is counted, and the link opened again",
    "frontend_svc/links/scheduler_link.py": "`Frontend.run` ends with it",
    "frontend_svc/server.py": "`Frontend.run` ends with the first of them",
    "frontend_svc/templates/bounded.py": "one piece of work, whose error is its caller's; each has a limit",
    "scheduler_svc/admin/board_feed.py": "catches all in each look",
    "scheduler_svc/servicer.py": "one stream: who hears nothing finds us silent, and dials again (H2)",
    "worker_svc/links/outputs.py": "one stream: a reader ends it, who hears no beat finds us silent (H2)",
    "worker_svc/ranks/follower.py": "the process ends with them",
    "worker_svc/ranks/joining.py": "at the start, which has a limit",
    "worker_svc/ranks/peer.py": "whatever ends it, the rank is gone from then on",
    "worker_svc/relay/server.py": "the process ends with it",
    "worker_svc/relay/servicer.py": "one stream, which ends with them",
    "worker_svc/server.py": "awaited",
    "worker_svc/steps/loop.py": "the process ends with it",
    "worker_svc/transfer/channels/acceptor.py": "one connection: what goes wrong closes it, and is counted",
    "worker_svc/transfer/channels/kept_mappings.py": "the next mapping starts another",
    "worker_svc/transfer/control/beats.py": "one read, which is awaited",
    "worker_svc/transfer/control/dialogue.py": "both are awaited, and their error is the import's",
    "worker_svc/transfer/control/pull_target.py": "catches all; the scheduler is told",
    "worker_svc/transfer/control/source.py": "one stream: a target whose words are not read is silent (HO19)",
    "worker_svc/transfer/control/target.py": "catches all; the scheduler is told",
    "worker_svc/worker.py": "`Worker.run` ends with the first of them",
}
"""By file: what becomes of an error of what it starts."""


def starts(tree: ast.Module) -> bool:
    """Something in it starts a thread, or a task."""
    names = (
        node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    )
    return any(name in STARTS for name in names)


def test_what_starts_threads_and_tasks_says_who_sees_their_end() -> None:
    found = {str(module.path) for module in read_modules(ROOT, SERVICES).values() if starts(module.parsed)}
    assert not found - SEEN.keys(), (
        "start it by signalbox/runtime/parts.py, or say who sees an error that ends it"
    )
    assert not SEEN.keys() - found, "nothing is started there any more"
