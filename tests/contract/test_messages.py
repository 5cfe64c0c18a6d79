"""What the messages between the services may say, seen on messages of a whole run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from signalbox.v1 import generation_pb2, to_worker_pb2
from tests.simulation import world
from tests.simulation.random_scenario import Scenario
from tests.simulation.scheduler_node import SchedulerNode

HUGE_VOCABULARY = 2**31 - 1
"""Tokens so large that four bytes of one do not stand anywhere by chance."""


@pytest.fixture(scope="module")
def run() -> tuple[Scenario, list[Any]]:
    """A scenario and all messages to and from the scheduler in it."""
    scenario = Scenario(11, 2, 1, faults=False, vocab_size=HUGE_VOCABULARY)
    messages: list[Any] = []
    send = world.Link.send

    def record(link: world.Link, to: world.Node, message: Any) -> None:
        payload = message[1] if isinstance(message, tuple) else message
        if isinstance(to, SchedulerNode) or isinstance(payload, to_worker_pb2.AttachWorkerResponse):
            messages.append(payload)
        send(link, to, message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.Link, "send", record)
        scenario.run()
    return scenario, messages


def test_no_token_stands_outside_the_payload(run: tuple[Scenario, list[Any]]) -> None:
    """M2, M3."""
    scenario, messages = run
    tokens = {
        token for s in scenario.frontend.sessions for token in (*s.prompt, *s.output) if token > 1 << 24
    }
    patterns = {np.array([token], "<i4").tobytes() for token in tokens}
    assert len(patterns) > 100
    submitted, placed = [], []
    for message in messages:
        bare = type(message)()
        bare.CopyFrom(message)
        for operation in getattr(bare, "operations", ()):
            if operation.submit.payload:
                submitted.append(operation.submit.ref.attempt)
            operation.submit.ClearField("payload")
        for request in getattr(bare, "new_requests", ()):
            if request.payload:
                placed.append(request.ref.attempt)
            request.ClearField("payload")
        raw = bare.SerializeToString()
        windows = {raw[i : i + 4] for i in range(len(raw) - 3)}
        assert not windows & patterns, f"a token stands in {type(message).__name__}"
    sessions = scenario.frontend.sessions
    assert sorted(submitted) == sorted(session.attempt for session in sessions)
    assert len(placed) == len(set(placed)), "each payload passes the scheduler once"
    never_placed = set(submitted) - set(placed)
    assert all(s.ends == ["cancelled"] for s in sessions if s.attempt in never_placed)


def test_a_payload_is_what_the_frontend_made(run: tuple[Scenario, list[Any]]) -> None:
    """M2."""
    scenario, messages = run
    prompts = {tuple(session.prompt) for session in scenario.frontend.sessions}
    received = {
        tuple(np.frombuffer(generation_pb2.RequestPayload.FromString(new.payload).token_ids, "<i4").tolist())
        for message in messages
        for new in getattr(message, "new_requests", ())
    }
    assert received and received <= prompts


def test_a_steady_decode_step_names_only_who_gets_a_block(run: tuple[Scenario, list[Any]]) -> None:
    """M4."""
    _, messages = run
    steady = [
        step
        for message in messages
        for step in getattr(message, "steps", ())
        if {field.name for field, _ in step.ListFields()}
        <= {"step_id", "scheduler_epoch", "scheduled_cached_reqs"}
        and not step.scheduled_cached_reqs.chunk_slots
        and not step.scheduled_cached_reqs.HasField("resumed")
    ]
    assert len(steady) > 10
    for step in steady:
        fields = {field.name for field, _ in step.scheduled_cached_reqs.ListFields()}
        assert fields <= {"new_block_slots", "new_block_ids"}
    assert any(not step.scheduled_cached_reqs.new_block_slots for step in steady), (
        "a step that names nobody at all"
    )


def test_columns_of_a_group_have_the_same_length(run: tuple[Scenario, list[Any]]) -> None:
    _, messages = run
    outputs = [output for message in messages for output in getattr(message, "outputs", ())]
    assert len(outputs) > 20
    for output in outputs:
        assert len(output.exception_slots) == 2 * len(output.exception_counts)
        assert len(output.sealed_slots) == len(output.sealed_indexes) == len(output.sealed_hashes) // 8
        assert (
            len(output.finished_slots) == 2 * len(output.finished_reasons) == len(output.finished_counts) // 2
        )
