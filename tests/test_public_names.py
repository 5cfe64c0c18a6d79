"""Public names stay: tests/public_names.txt lists them, docs/removed.md those that were removed on purpose."""

from __future__ import annotations

import subprocess

import pytest

from tools.public_names.listing import LIST, collect, owners, read_list, unexplained
from tools.public_names.sources import ROOT

RENEW = "renew the list with: python -m tools.public_names --write"
EXPLAIN = (
    "public names are gone. Serve each beside its new name, with a warning, until the release after the next tag, or "
    f"list it in docs/removed.md, a row of `name`, commit and what to use instead; then {RENEW}"
)
BASE = "origin/main"


@pytest.fixture(scope="module")
def names() -> list[str]:
    return collect()


def committed(revision: str) -> list[str]:
    """The list at a revision; empty where there is none."""
    shown = subprocess.run(
        ["git", "show", f"{revision}:{LIST.relative_to(ROOT)}"],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    return shown.stdout.splitlines() if shown.returncode == 0 else []


def test_the_list_is_that_of_the_code(names: list[str]) -> None:
    missing = unexplained(read_list(), names)
    assert not missing, f"{missing}: {EXPLAIN}"
    assert read_list() == names, RENEW


@pytest.mark.parametrize("revision", ["HEAD", BASE])
def test_no_line_is_taken_out_by_hand(names: list[str], revision: str) -> None:
    missing = unexplained(committed(revision), names)
    assert not missing, f"{missing}: {EXPLAIN}"


@pytest.mark.parametrize(
    "line",
    [
        "setting SIGNALBOX_FRONTEND_HTTP frontend-svc --http",
        "variable SIGNALBOX_API_KEY",
        "command signalbox key new",
        "option signalbox up --workers",
        "metric signalbox_scheduler_blocks",
        "label signalbox_scheduler_blocks state",
        "label signalbox_scheduler_worker_role role",
        "label signalbox_frontend_key_tokens tenant",
        "label signalbox_worker_slots state",
        "log first_token_s",
        "log num_left_out",
        "span prefill",
        "attribute signalbox.request.id",
        "field signalbox.v1.ModelRunnerOutput.step_id 1",
        "method signalbox.v1.AdminService.DrainWorker",
        "error UnknownModelError",
        "error-code model_not_found",
        "path POST /v1/chat/completions",
        "path POST /v1/batches/{batch_id}/cancel",
    ],
)
def test_each_kind_is_found(names: list[str], line: str) -> None:
    assert line in names


def test_values_of_labels_are_no_labels(names: list[str]) -> None:
    assert [line for line in names if line.startswith("label signalbox_worker_slots")] == [
        "label signalbox_worker_slots state"
    ]


@pytest.mark.parametrize(
    ("line", "names_of_it", "other"),
    [
        ("option signalbox up --old", ["signalbox up --old", "signalbox up"], "signalbox upward"),
        (
            "setting SIGNALBOX_WORKER_X worker-svc --x",
            ["SIGNALBOX_WORKER_X", "worker-svc --x"],
            "SIGNALBOX_WORKER",
        ),
        ("label signalbox_old reason", ["signalbox_old", "signalbox_old reason"], "reason"),
        ("field signalbox.v1.Old.step 3", ["signalbox.v1.Old", "signalbox.v1.Old.step"], "signalbox.v1"),
        ("path GET /old", ["GET /old", "/old"], "GET"),
        ("metric signalbox_old", ["signalbox_old"], "signalbox"),
    ],
)
def test_a_line_may_go_only_if_its_name_is_listed_as_removed(
    line: str, names_of_it: list[str], other: str
) -> None:
    assert unexplained([line], [], removed=[other]) == [line]
    assert [name for name in names_of_it if unexplained([line], [], removed=[name])] == []
    assert set(names_of_it) <= set(owners(line))


def test_a_field_may_go_if_its_number_and_name_are_reserved() -> None:
    gone = [f"field signalbox.v1.RequestPayload.grammar {number}" for number in (4, 5)]
    assert unexplained(gone, [], removed=[]) == gone[1:]
