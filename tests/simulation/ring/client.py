"""One client of a simulated frontend: it opens a session, reads its output as it comes, and knows what it should be."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from frontend_svc.requests.block_hashes import BlockHashes
from frontend_svc.requests.events import Delta, Finished, read_vector
from frontend_svc.requests.request import (
    CheckedRequest,
    Pooling,
    PoolingMode,
    StructuredOutput,
    sampling_of,
)
from frontend_svc.requests.sessions.output_origin import OutputOrigin
from frontend_svc.text.certain import Certain
from frontend_svc.text.stop_strings import Found
from signalbox.errors import SignalboxError
from signalbox.grammar.form import FormKind
from signalbox.protocol.enums import FinishReason
from signalbox.protocol.model_identity import ModelIdentity
from tests.simulation.ring.nodes import FrontendNode
from tests.simulation.ring.request import RingRequest
from tests.simulation.ring.setup import MODEL
from tests.simulation.vectors import expected_vector
from worker_svc.core.requests import pooling as worker_pooling

if TYPE_CHECKING:
    from tests.simulation.ring.ring import Ring


class _StopAfter:
    """Stands in for text: a stop string is found at the n-th output token."""

    def __init__(self, count: int) -> None:
        self._left = count

    def push(self, token_ids: Sequence[int]) -> Certain:
        """As `TextStream.push`."""
        if len(token_ids) >= self._left:
            return Certain("", Found("stop", self._left))
        self._left -= len(token_ids)
        return Certain()

    def flush(self, *, is_whole: bool = False) -> Certain:
        """As `TextStream.flush`."""
        return Certain()


SETTLED_S = 2.0
"""A worker that has run for so long is known to all, if anybody tells it so."""


class _WatchedOrigin(OutputOrigin):
    """Counts how often the frontend knew that the output went on under another identity, and looks whether it had to
    (I9)."""

    def __init__(self, ring: Ring, request: RingRequest) -> None:
        super().__init__()
        self._ring, self._request = ring, request
        self.num_moves = 0

    def moves_to(self, identity: ModelIdentity) -> bool:
        """As `OutputOrigin.moves_to`."""
        moves = super().moves_to(identity)
        if moves:
            self.num_moves += 1
            for node in self._ring.workers:
                if node.has_taken_for(SETTLED_S, self.prior):
                    message = f"{self._request.request_id} left its identity, which {node.name} has"
                    self._ring.findings.append(f"{self._ring.world.now:.3f} {message}")
        return moves


class Client:
    """A client and what it has got."""

    def __init__(self, ring: Ring, node: FrontendNode, request: RingRequest) -> None:
        self.ring, self.node, self.request = ring, node, request
        self.frontend_number = node.num_starts
        self.output: list[int] = []
        self.finished: Finished | None = None
        self.refusal: SignalboxError | None = None
        """It was not let in."""
        self.is_wrong = False
        """It was given something else than it should have been."""
        self.session: Any = None
        self.logprobs: list[float] = []
        self.prompt_logprobs: list[float] = []
        self.vector: list[float] = []
        self.began_at = self.ended_at = 0.0
        self.gap_s = self.gap_ended_at = 0.0
        """Longest time without a token, from its beginning on, and when it was over."""
        self._read_at = 0.0

    @property
    def is_over(self) -> bool:
        """It waits for nothing: it was told of the end, or its frontend is gone with its connection."""
        has_ended = self.finished is not None or self.refusal is not None or self.is_wrong
        return has_ended or not self.is_connected

    @property
    def is_connected(self) -> bool:
        """The process that it called is there."""
        return self.node.is_running and self.node.num_starts == self.frontend_number

    def __str__(self) -> str:
        state = "not let in" if self.refusal else "waits"
        if self.finished is not None:
            state = f"{self.finished.reason.name} {self.finished.error or ''}"
        attempt = self.session.attempt if self.session is not None else 0
        return f"{self.request.request_id} at {self.node.name}, attempt {attempt}, {len(self.output)} tokens: {state}"

    async def run(self) -> None:
        """From its request to the end."""
        assert self.node.frontend is not None
        self.began_at = self._read_at = self.ring.world.now
        request = self.request
        keys = tuple(identity.key for identity in self.ring.setup.identities)
        hashes = BlockHashes(MODEL, "", self.ring.setup.block_size, identities=keys or (b"",))
        text: Any = None if request.stop_after is None else _StopAfter(request.stop_after)
        try:
            self.session = self.node.frontend.table.open(make_checked(request), text, hashes)
        except SignalboxError as error:
            self.refusal = error
            return
        if keys:
            self.session.origin = _WatchedOrigin(self.ring, self.request)
        if request.leaves_after_s is not None:
            asyncio.get_running_loop().call_later(request.leaves_after_s, self.session.cancel)
        while self.finished is None:
            delta = await self.session.next_delta()
            try:
                self._take(delta)
            except AssertionError as error:
                self.ring.findings.append(f"{self.ring.world.now:.3f} {error}")
                self.is_wrong = True
                return
            if request.think_s and self.finished is None:
                await asyncio.sleep(request.think_s)

    def _take(self, delta: Delta) -> None:
        now = self.ring.world.now
        if now - self._read_at > self.gap_s:
            self.gap_s, self.gap_ended_at = now - self._read_at, now
        self._read_at = now
        if delta.token_ids:
            self.ring.trace.note(self.node.name, f"{self.request.request_id}: tokens {delta.token_ids}")
        self.output += delta.token_ids
        self.logprobs += [each.logprob for each in delta.logprobs]
        self.prompt_logprobs += [each.logprob for each in delta.prompt_logprobs]
        if self.ring.setup.identities:
            self._check_moves()
        else:
            expected = self.ring.expected(self.request)
            assert self.output == expected[: len(self.output)], f"{self}: {self.output} instead of {expected}"
        self.finished = delta.finished
        if delta.vector:
            self.vector = read_vector(delta.vector)
        if delta.finished is not None:
            self.ended_at = now
            self.ring.trace.note(self.node.name, f"{self}")

    def _check_moves(self) -> None:
        """Asserts I9: the output is that of one identity, but for moves that the frontend knew of."""
        setup = self.ring.setup
        num_moves = self.request.least_moves(self.output, setup.identities, setup.vocab_size)
        assert num_moves is not None, f"{self}: no identity makes {self.output}"
        known = self.session.origin.num_moves
        assert num_moves <= known, f"{self}: under {num_moves + 1} identities, {known + 1} are known"

    def check(self) -> None:
        """Asserts that what it was told at the end is true."""
        if self.finished is None:
            return
        expected = self.ring.expected(self.request)
        finished = self.finished
        assert finished.num_output_tokens == len(self.output), f"{self}: {finished.num_output_tokens} counted"
        if finished.reason not in (FinishReason.STOP, FinishReason.LENGTH):
            return
        if self.ring.setup.identities:
            assert self.request.ends(self.output, self.ring.setup.limit), f"{self}: cut short"
            return
        assert self.output == expected, f"{self}: {self.output} instead of {expected}"
        weights = self.request.weights(self.output)
        assert (self.prompt_logprobs, self.logprobs) == weights, (
            f"{self}: other log-probabilities than {weights}"
        )
        if self.request.pooling:
            mode = worker_pooling.PoolingMode[self.request.pooling.upper()]
            wanted = expected_vector(list(self.request.prompt), mode)
            assert abs(self.vector[0] - wanted) <= 1e-3 * abs(wanted), f"{self}: {self.vector}, not {wanted}"


def make_checked(request: RingRequest) -> CheckedRequest:
    """The request as the frontend's processor would make it."""
    form = None if request.rule is None else StructuredOutput(FormKind.REGEX, request.rule.text)
    fields: dict[str, Any] = {
        "request_id": request.request_id,
        "model": MODEL,
        "prompt": np.array(request.prompt, "<i4").tobytes(),
        "num_prompt_tokens": len(request.prompt),
        "max_tokens": 1 if request.pooling else request.max_tokens,
        "seed": request.seed,
        "sampling": sampling_of(
            {
                "temperature": 1.0 if request.is_drawn else 0.0,
                "stop_token_ids": request.stop_token_ids,
                "repetition_penalty": 2.0 if request.never_repeats else None,
                "structured_output": form,
                "logprobs": 0 if request.logprobs else None,
                "prompt_logprobs": 0 if request.prompt_logprobs else None,
            }
        ),
        "priority": request.priority,
        "tenant": request.tenant,
        "pooling": Pooling(PoolingMode(request.pooling), raw=True) if request.pooling else None,
    }
    return CheckedRequest(**fields)
