"""What a source says of a request that is taken over, as the request that it is here."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
from google.protobuf.message import DecodeError

from signalbox.protocol.enums import ReadFault
from signalbox.protocol.hash_chain import HASH_BYTES
from signalbox.v1 import from_frontend_pb2, generation_pb2, to_worker_pb2, transfer_pb2, worker_pb2
from worker_svc.core.batch import RunnerInfo
from worker_svc.core.handoff.exports import Tail
from worker_svc.core.step import I32, NewRequest
from worker_svc.links.delta import parse_new_request
from worker_svc.links.payload import is_pooling


class BadArrivalError(Exception):
    """What comes of a request is none that can go on here. The message is a sentence's end. `fault`: what it says of
    other requests from the same worker."""

    def __init__(self, message: str, fault: ReadFault = ReadFault.PAIR) -> None:
        super().__init__(message)
        self.fault = fault


def parse_head(
    message: to_worker_pb2.NewRequestData, head: transfer_pb2.PullHead, info: RunnerInfo
) -> NewRequest:
    """The request as far as the head says it. message: what the scheduler has said. Raises BadArrivalError."""
    return _request(message, head, _tokens(head.token_ids), info)


def whole_request(
    message: to_worker_pb2.NewRequestData,
    head: transfer_pb2.PullHead,
    tail: transfer_pb2.PullTail,
    info: RunnerInfo,
) -> NewRequest:
    """The request with all of its output. Raises BadArrivalError."""
    tokens = np.concatenate((_tokens(head.token_ids), _tokens(tail.token_ids)))
    return _request(message, head, tokens, info)


def _request(
    message: to_worker_pb2.NewRequestData, head: transfer_pb2.PullHead, tokens: I32, info: RunnerInfo
) -> NewRequest:
    if is_pooling(message):
        _refuse("a pooling request is not handed over")
    meta = from_frontend_pb2.RequestMeta.FromString(message.scheduler_meta)
    if head.num_prompt_tokens != meta.num_prompt_tokens or head.num_prompt_tokens > len(tokens):
        _refuse(f"its prompt has {head.num_prompt_tokens} of {len(tokens)} tokens")
    try:
        payload = generation_pb2.RequestPayload.FromString(head.payload)
    except DecodeError:
        _refuse("its payload cannot be read")
    payload.token_ids = tokens.tobytes()
    payload.num_prior_output_tokens = len(tokens) - head.num_prompt_tokens
    told = to_worker_pb2.NewRequestData()
    told.CopyFrom(message)
    told.payload, told.num_known_tokens = payload.SerializeToString(), len(tokens)
    request = parse_new_request(told, info)
    if request.failure is not None:
        raise BadArrivalError(request.failure.message, ReadFault.REQUEST)
    return request


def parse_tail(
    message: to_worker_pb2.NewRequestData, request: NewRequest, tail: transfer_pb2.PullTail, block_size: int
) -> Tail:
    """The counts and names of a request. Raises BadArrivalError."""
    raw = tail.sealed_hashes
    if len(raw) % HASH_BYTES or len(tail.chain_hash) not in (0, HASH_BYTES):
        _refuse("names of its blocks cannot be read")
    for batch in tail.unread:
        _check_unread(batch, request)
    meta = from_frontend_pb2.RequestMeta.FromString(message.scheduler_meta)
    sealed = tuple(raw[at : at + HASH_BYTES] for at in range(0, len(raw), HASH_BYTES))
    num_named = (meta.num_prompt_tokens + meta.num_prior_output_tokens) // block_size
    return Tail(
        token_ids=request.token_ids,
        num_computed=tail.num_computed_tokens,
        num_read=tail.num_read_positions,
        sealed=sealed,
        chain_hash=tail.chain_hash,
        next_seal=num_named + len(sealed),
        state_version=0 if tail.num_state_bytes else None,
        num_state_drafts=tail.num_state_drafts,
    )


def _check_unread(batch: worker_pb2.OutputBatch, request: NewRequest) -> None:
    """An output tells of its request alone, and of tokens that this has."""
    attempts, starts = (np.frombuffer(raw, "<u4") for raw in (batch.attempts, batch.starts))
    counts = np.frombuffer(batch.counts, np.uint8) if batch.counts else np.ones(len(attempts), np.uint8)
    tokens, output = np.frombuffer(batch.token_ids, "<i4"), request.prior_output
    is_one = len(attempts) == len(starts) == len(counts) <= 1 and int(counts.sum()) == len(tokens)
    told = {*attempts.tolist(), *(each.attempt for each in batch.logprobs)}
    is_mine = told.union(each.attempt for each in batch.prompt_logprobs) <= {request.ref.attempt}
    if not is_one or not is_mine or batch.finished or batch.vectors:
        _refuse("an output of it tells of something else")
    start = int(starts[0]) if len(starts) else 0
    if not np.array_equal(output[start : start + len(tokens)], tokens):
        _refuse("an output of it has other tokens")


def _tokens(raw: bytes) -> I32:
    if len(raw) % 4:
        _refuse("its tokens cannot be read")
    return np.frombuffer(raw, "<i4").astype(np.int32)


def _refuse(reason: str) -> NoReturn:
    raise BadArrivalError(reason)
