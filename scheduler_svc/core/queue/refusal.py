"""Why a request can never run, said before it is placed."""

from __future__ import annotations

import math
from collections.abc import Sequence

from scheduler_svc.core.state.config import SchedulerConfig
from scheduler_svc.core.state.requests.notices import Rejected
from scheduler_svc.core.state.requests.request import BlockNames, Request
from scheduler_svc.core.state.worker import Worker
from signalbox.protocol.hash_chain import HASH_BYTES

MAX_REQUEST_BYTES = 48 << 20
"""Largest metadata and payload of a request together: it has to fit into one message to its worker."""

MAX_OTHER_NAMES = 3
"""Identities of its model that a request may have names of blocks for, besides the first."""

QUEUE_RETRY_S = 1.0
"""Seconds until a client should try again after a queue was full: it moves with every step."""


def refuse(request: Request, code: str, message: str, field: str = "") -> Rejected:
    """The notice; `code` is the name of a class of signalbox/errors.py."""
    return Rejected(request.key, request.attempt, code, message, field)


def refuse_for_now(request: Request, message: str, retry_after_s: float = QUEUE_RETRY_S) -> Rejected:
    """The notice of a limit that is reached, which `message` names with its value and what is there."""
    told = f"{message}; try again in {math.ceil(retry_after_s)} s"
    return Rejected(request.key, request.attempt, "ResourceExhaustedError", told, retry_after_s=retry_after_s)


def malformation_of(request: Request) -> Rejected | None:
    """What contradicts itself in `request`, whoever might run it; None: nothing."""
    if not request.num_prompt_tokens:
        return refuse(request, "InvalidRequestError", "a prompt has at least one token", "num_prompt_tokens")
    own = BlockNames(request.identity, request.root_hash, request.block_hashes)
    for names in (own, *request.other_names):
        malformation = _malformation_of_names(request, names)
        if malformation is not None:
            return malformation
    if len(request.meta) + len(request.payload) > MAX_REQUEST_BYTES:
        message = f"meta and payload have more than {MAX_REQUEST_BYTES} bytes"
        return refuse(request, "InvalidRequestError", message, "payload")
    return None


def _malformation_of_names(request: Request, names: BlockNames) -> Rejected | None:
    num_bytes, size = len(names.hashes), request.hash_block_size
    most = request.num_known_tokens // size if size else 0
    if num_bytes % HASH_BYTES or num_bytes // HASH_BYTES > most:
        message = (
            f"block_hashes has {num_bytes} bytes, not {HASH_BYTES} for each of at most {most} full blocks"
        )
        return refuse(request, "InvalidRequestError", message, "block_hashes")
    if len(names.root) not in (0, HASH_BYTES):
        message = f"root_hash has {len(names.root)} bytes, not {HASH_BYTES}"
        return refuse(request, "InvalidRequestError", message, "root_hash")
    if len(request.other_names) > MAX_OTHER_NAMES:
        message = f"other_names are {len(request.other_names)}; {MAX_OTHER_NAMES} are allowed"
        return refuse(request, "InvalidRequestError", message, "other_names")
    return None


def refusal_of(request: Request, workers: Sequence[Worker], config: SchedulerConfig) -> Rejected | None:
    """Why none of `workers`, which serve its model, can ever run `request`; None: one can."""
    able = [worker for worker in workers if worker.info.serves(request)]
    if not able:
        kind = "pooling" if request.is_pooling else "generation"
        message = f"no worker of {request.model!r} serves {kind} requests"
        return refuse(request, "UnsupportedError", message, "kind")
    too_long = _too_long(request, able, config)
    if too_long is not None:
        return refuse(request, "InvalidRequestError", too_long, "prompt")
    if request.is_pooling and request.num_prior_output_tokens:
        return refuse(request, "InvalidRequestError", "a pooling request has no output tokens", "prompt")
    if not request.is_pooling and request.max_tokens <= request.num_prior_output_tokens:
        return refuse(request, "InvalidRequestError", "max_tokens leaves no token to make", "max_tokens")
    return None


def _too_long(request: Request, workers: Sequence[Worker], config: SchedulerConfig) -> str | None:
    prompt = f"the prompt has {request.num_known_tokens} tokens"
    longest = max(worker.max_known_tokens(request.is_pooling) for worker in workers)
    if request.num_known_tokens > longest:
        if request.is_pooling:
            return f"{prompt}; {longest} are allowed"
        return f"{prompt}; prompt and output may have {longest + 1} together"
    budget = max(worker.limits.max_num_batched_tokens for worker in workers)
    if not config.enable_chunked_prefill and request.num_prompt_tokens > budget:
        return f"{prompt}; without chunked prefill {budget} are allowed"
    return None
