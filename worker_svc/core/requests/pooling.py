"""What pooling requests are given: a vector, numbers for labels, or a row of either for each token of the prompt."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

import numpy as np
from numpy.typing import NDArray

from signalbox.protocol.enums import ModelTask

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
TOKEN_TASKS = frozenset((ModelTask.TOKEN_EMBED, ModelTask.TOKEN_CLASSIFY))
"""Tasks whose result is a matrix with a row for each token of the prompt."""
LABEL_TASKS = frozenset((ModelTask.CLASSIFY, ModelTask.SCORE, ModelTask.TOKEN_CLASSIFY))
"""Tasks of a classification head."""
MAX_RESULT_BYTES = 4 << 20
"""Largest result of one request."""
MAX_STEP_BYTES = 32 << 20
"""Most bytes of matrices that one step may yield: a frontend that reads a little late has to hold them all."""


class PoolingMode(IntEnum):
    """Which positions count for the vector; numbers as in generation.proto."""

    MEAN = 1
    LAST = 2
    CLS = 3


class Activation(StrEnum):
    """What the numbers of labels go through."""

    IDENTITY = "identity"
    SIGMOID = "sigmoid"
    SOFTMAX = "softmax"


@dataclass(frozen=True)
class PoolingParams:
    """What one pooling request asks for, with all defaults filled in. Fields as in generation.proto."""

    mode: PoolingMode = PoolingMode.LAST
    is_raw: bool = False
    """Vectors are not scaled to length 1, and numbers of labels not put through the activation."""
    dimensions: int = 0
    """Only the first so many; 0: all."""
    task: ModelTask = ModelTask.EMBED
    activation: Activation = Activation.IDENTITY
    """Activation of the head, for a task of labels."""
    is_whole: bool = False
    """The model reads both ways: it computes the prompt at once, in the step of its last chunk."""
    num_first_tokens: int = 0
    """Tokens of type 0, ahead of those of type 1; 0: all have type 0."""

    def positions(self, num_tokens: int) -> tuple[int, int]:
        """Half-open range of the positions, of `num_tokens`, that are read as their chunks are computed."""
        if self.is_whole or self.task in (ModelTask.CLASSIFY, ModelTask.SCORE):
            return num_tokens - 1, num_tokens
        if self.task in TOKEN_TASKS:
            return 0, num_tokens
        if self.mode == PoolingMode.CLS:
            return 0, 1
        return (0 if self.mode == PoolingMode.MEAN else num_tokens - 1), num_tokens


class Reading:
    """What has been read of the prompt of one pooling request, chunk by chunk.

    A runner gives sums of hidden states `[H]`, numbers of labels `[L]`, or rows of either, one for each token that is
    read. Of a model that reads both ways it gives the result of the whole prompt, before it is cut and scaled.
    """

    def __init__(self, params: PoolingParams) -> None:
        self.params = params
        self._sum: F64 | None = None
        self._rows: list[F32] = []

    def add(self, values: F32) -> None:
        """Takes what was read of the next positions."""
        if self.params.task in TOKEN_TASKS:
            self._rows.append(values)
        else:
            self._sum = values.astype(np.float64) if self._sum is None else self._sum + values

    def result(self, num_tokens: int) -> F32:
        """`[D]`, or `[num_tokens, D]` of a task for tokens, when all positions have been read."""
        if self.params.task in TOKEN_TASKS:
            return finished(np.concatenate(self._rows).astype(np.float64), self.params)
        assert self._sum is not None, "a position that is read lies in some chunk"
        return pooled_vector(self._sum, num_tokens, self.params)


def pooled_vector(hidden_sum: F64, num_tokens: int, params: PoolingParams) -> F32:
    """`[D]` of the sum `[H]` over all positions that count of a prompt of `num_tokens` tokens."""
    start, end = params.positions(num_tokens)
    return finished(hidden_sum / (end - start), params)


def finished(values: F64, params: PoolingParams) -> F32:
    """`[..., D]` of hidden states or numbers of labels `[..., H]`: cut and scaled, or put through the activation."""
    if params.task in LABEL_TASKS:
        return (values if params.is_raw else activated(values, params.activation)).astype(np.float32)
    vectors = values[..., : params.dimensions or None]
    if not params.is_raw:
        lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
        vectors = vectors / np.maximum(lengths, np.finfo(np.float64).tiny)
    return vectors.astype(np.float32)


def activated(values: F64, activation: Activation) -> F64:
    """`values` `[..., L]` through `activation`."""
    if activation == Activation.SIGMOID:
        with np.errstate(over="ignore"):  # exp of a large number is infinite, and its inverse 0
            return 1 / (1 + np.exp(-values))
    if activation == Activation.SOFTMAX:
        powers = np.exp(values - values.max(-1, keepdims=True))
        shares: F64 = powers / powers.sum(-1, keepdims=True)
        return shares
    return values
