"""Makes the messages with which a session speaks to the scheduler."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from frontend_svc.models import Worker
from frontend_svc.requests.block_hashes import BlockHashes
from frontend_svc.requests.request import CheckedRequest, Pooling, PoolingMode, StructuredOutput
from frontend_svc.requests.sessions.session import Session
from signalbox.grammar.form import FormKind
from signalbox.protocol.enums import WorkerReach
from signalbox.protocol.sampling import WORKERS
from signalbox.v1 import from_frontend_pb2, shared_pb2
from signalbox.v1 import generation_pb2 as generation

Operation = from_frontend_pb2.FrontendOperation
"""One thing said to the scheduler."""


def make_ref(session: Session) -> shared_pb2.RequestRef:
    """Names the session's current attempt."""
    return shared_pb2.RequestRef(request_id=session.ring_name, attempt=session.attempt)


def make_cancel(session: Session) -> Operation:
    """Says that nobody wants the output any more."""
    return Operation(cancel=from_frontend_pb2.CancelRequest(ref=make_ref(session)))


def make_finish(session: Session) -> Operation:
    """Says that a stop string was found."""
    return Operation(finish=from_frontend_pb2.FinishRequest(ref=make_ref(session)))


def make_pause(session: Session) -> Operation:
    """Asks for a pause: the client is slow."""
    return Operation(pause=from_frontend_pb2.PauseRequest(ref=make_ref(session)))


def make_unpause(session: Session) -> Operation:
    """Ends the pause: the client has caught up."""
    return Operation(unpause=from_frontend_pb2.UnpauseRequest(ref=make_ref(session)))


def make_submit(session: Session, now: float) -> Operation:
    """Submits the current attempt: prompt plus output so far."""
    request = session.request
    token_ids = request.prompt + session.output.tobytes()
    payload = generation.RequestPayload(
        token_ids=token_ids,
        num_prior_output_tokens=len(session.output),
        sampling=make_sampling(request),
        choice_index=request.choice_index,
        bad_token_sequences=[
            generation.TokenSequence(token_ids=sequence) for sequence in request.bad_token_sequences
        ],
        pooling=None if request.pooling is None else make_pooling(request.pooling),
    )
    if request.reasoning is not None:
        budget = asdict(request.reasoning)
        del budget["field"]
        payload.reasoning_budget.CopyFrom(generation.ReasoningBudget(**budget))
    submit = from_frontend_pb2.SubmitRequest(
        ref=make_ref(session),
        meta=make_meta(session, token_ids, now),
        payload=payload.SerializeToString(),
    )
    return Operation(submit=submit)


def make_meta(session: Session, token_ids: bytes, now: float) -> from_frontend_pb2.RequestMeta:
    """What the scheduler may see: counts, hashes and policy."""
    request, hashes = session.request, session.hashes
    names = make_names(hashes, token_ids) if hashes else [from_frontend_pb2.BlockNames()]
    return from_frontend_pb2.RequestMeta(
        model=request.model,
        num_prompt_tokens=request.num_prompt_tokens,
        num_prior_output_tokens=len(session.output),
        max_tokens=request.max_tokens,
        block_hashes=names[0].block_hashes,
        hash_block_size=hashes.block_size if hashes else 0,
        root_hash=names[0].root_hash,
        identity=names[0].identity,
        other_names=names[1:],
        output_identity=session.origin.prior,
        tenant=request.tenant,
        priority=request.priority,
        kind=generation.REQUEST_KIND_GENERATE if request.pooling is None else generation.REQUEST_KIND_POOLING,
        has_grammar="structured_output" in request.sampling,
        wants_prompt_logprobs="prompt_logprobs" in request.sampling,
        traceparent=request.trace.traceparent,
        tracestate=request.trace.tracestate,
        age_ms=int((now - session.arrival_s) * 1e3),
        num_losses=session.losses.num_losses,
        num_crashes=session.losses.num_crashes,
    )


def make_names(hashes: BlockHashes, token_ids: bytes) -> list[from_frontend_pb2.BlockNames]:
    """The names of the full blocks of `token_ids`, once for each identity."""
    return [
        from_frontend_pb2.BlockNames(identity=key, root_hash=hashes.roots[key], block_hashes=names)
        for key, names in hashes.extend(token_ids).items()
    ]


def make_check(session: Session, worker_id: str, worker_instance: str) -> Operation:
    """Asks whether anybody still has the request; `worker_instance` is the process now in the place of a worker that
    may have had it."""
    check = from_frontend_pb2.CheckRequest(
        ref=make_ref(session),
        worker_id=worker_id,
        worker_instance=worker_instance,
        may_be_on=session.legs.workers if session.legs.is_known else (),
        model=session.request.model,
    )
    return Operation(check=check)


def make_reach(worker: Worker, reach: WorkerReach) -> Operation:
    """Says how a worker process is reached from here."""
    return Operation(reach=from_frontend_pb2.WorkerReach(worker=make_worker_ref(worker), state=reach))  # type: ignore[arg-type]


def make_worker_ref(worker: Worker) -> shared_pb2.WorkerRef:
    """The name of a worker process in messages."""
    return shared_pb2.WorkerRef(worker_id=worker.worker_id, worker_instance=worker.instance)


def make_sampling(request: CheckedRequest) -> generation.SamplingParams:
    """The parameters that the worker needs, with the seed drawn; stop strings are ours to find."""
    fields: dict[str, Any] = {name: value for name, value in request.sampling.items() if name in WORKERS}
    fields["seed"], fields["max_tokens"] = request.seed, request.max_tokens
    if request.turn_end is not None and not request.sampling.get("ignore_eos"):
        fields["stop_token_ids"] = [*request.sampling.get("stop_token_ids", ()), request.turn_end]
    form = request.sampling.get("structured_output")
    return generation.SamplingParams(
        **fields, structured_output=None if form is None else make_structured_output(form)
    )


def make_structured_output(form: StructuredOutput) -> generation.StructuredOutput:
    """The message of a form."""
    if form.form is FormKind.CHOICE:
        return generation.StructuredOutput(choice=generation.Choices(values=form.choices))
    if form.form is FormKind.JSON_OBJECT:
        return generation.StructuredOutput(json_object=True)
    return generation.StructuredOutput(**{form.form.value: form.text})  # type: ignore[arg-type]


def make_pooling(pooling: Pooling) -> generation.PoolingParams:
    """What a pooling request asks for."""
    return generation.PoolingParams(
        mode=_POOLING_MODES[pooling.mode],
        raw=pooling.raw,
        dimensions=pooling.dimensions,
        task=int(pooling.task),  # type: ignore[arg-type]
        num_first_tokens=pooling.num_first_tokens,
    )


_POOLING_MODES = {
    None: generation.POOLING_MODE_UNSPECIFIED,
    PoolingMode.MEAN: generation.POOLING_MODE_MEAN,
    PoolingMode.LAST: generation.POOLING_MODE_LAST,
    PoolingMode.CLS: generation.POOLING_MODE_CLS,
}
