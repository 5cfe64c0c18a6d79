"""What of an output tells of one request (docs/design.md, HO5 and HO11)."""

from __future__ import annotations

from signalbox.protocol import columns
from signalbox.v1 import worker_pb2


def only_of(batch: worker_pb2.OutputBatch, attempt: int) -> worker_pb2.OutputBatch | None:
    """The part of an output that tells of an attempt of its frontend, without number and leg; None: nothing does."""
    attempts = columns.unpack(batch.attempts, columns.U32)
    part = worker_pb2.OutputBatch()
    if attempt in attempts:
        row = attempts.index(attempt)
        counts = columns.unpack(batch.counts, columns.U8) or [1] * len(attempts)
        first = sum(counts[:row])
        part.attempts = columns.pack([attempt], columns.U32)
        part.starts = columns.pack([columns.unpack(batch.starts, columns.U32)[row]], columns.U32)
        part.token_ids = batch.token_ids[4 * first : 4 * (first + counts[row])]
        if counts[row] != 1:
            part.counts = columns.pack([counts[row]], columns.U8)
    part.logprobs.extend(each for each in batch.logprobs if each.attempt == attempt)
    part.prompt_logprobs.extend(each for each in batch.prompt_logprobs if each.attempt == attempt)
    return part if part.ByteSize() else None


def repeat(batch: worker_pb2.OutputBatch, sequence: int, leg: int) -> worker_pb2.OutputBatch:
    """Such a part as an output of this worker's own, under its number and leg."""
    said = worker_pb2.OutputBatch()
    said.CopyFrom(batch)
    said.sequence = sequence
    if said.attempts:
        said.legs = columns.pack([leg], columns.U32)
    for each in said.prompt_logprobs:
        each.leg = leg
    return said
