"""The face that the gateway smg drives: vllm.grpc.engine.VllmEngine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

from frontend_svc.api.grpc.call import Context, accept
from frontend_svc.api.vllm.call import VERSION, abort, next_deltas
from frontend_svc.api.vllm.engine_messages import make_responses, read_request
from frontend_svc.api.vllm.tokenizer_archive import make_archive, split
from frontend_svc.model_facts import ModelFacts, read_model_facts
from frontend_svc.requests.sessions.session import SessionStatus
from frontend_svc.services import Services
from signalbox.errors import UnsupportedError
from signalbox.links import rpc
from signalbox.vllm import common_pb2 as common
from signalbox.vllm import engine_pb2 as engine
from signalbox.vllm.engine_pb2_grpc import VllmEngineServicer as Servicer

SERVICE = "vllm.grpc.engine.VllmEngine"


class VllmEngineServicer(Servicer):
    """One model behind one frontend: requests of this protocol name none."""

    def __init__(self, services: Services, model: Path | None, *, is_ready: Callable[[], bool]) -> None:
        """`model` is the directory with the tokenizer. Raises StartupError when its config.json is broken."""
        self._services = services
        self._table, self._directory = services.table, services.directory
        self._model = model
        self._facts = ModelFacts() if model is None else read_model_facts(model)
        self._is_ready = is_ready
        self._start_s = time.monotonic()

    async def Generate(  # noqa: N802
        self, request: engine.GenerateRequest, context: Context
    ) -> AsyncIterator[engine.GenerateResponse]:
        """Streams the output of one request, or sends all of it at the end."""
        choices = await accept(self._services, lambda: read_request(request, context), context)
        try:
            if not request.stream:
                for session in choices.sessions:
                    session.want_whole()
            while news := await next_deltas(choices, context):
                for index, delta in news:
                    for response in make_responses(index, delta, choices.sessions[index], request.stream):
                        yield response
        finally:
            choices.cancel()  # the client left, or its deadline passed

    async def Abort(  # noqa: N802
        self, request: engine.AbortRequest, context: Context
    ) -> engine.AbortResponse:
        """Cancels requests; an unknown id is one that has ended."""
        abort(self._services, request.request_ids)
        return engine.AbortResponse()

    async def HealthCheck(  # noqa: N802
        self, request: engine.HealthCheckRequest, context: Context
    ) -> engine.HealthCheckResponse:
        """Answers with what /ready says."""
        if self._is_ready():
            return engine.HealthCheckResponse(healthy=True, message="ready")
        return engine.HealthCheckResponse(
            healthy=False, message="no worker can be reached, or we are stopping"
        )

    async def GetModelInfo(  # noqa: N802
        self, request: engine.GetModelInfoRequest, context: Context
    ) -> engine.GetModelInfoResponse:
        """Answers with the one model served."""
        return await rpc.answer(context, self._describe_model)

    async def GetServerInfo(  # noqa: N802
        self, request: engine.GetServerInfoRequest, context: Context
    ) -> engine.GetServerInfoResponse:
        """What a frontend knows; the rest is unset."""

        async def work() -> engine.GetServerInfoResponse:
            return engine.GetServerInfoResponse(
                active_requests=len(self._table),
                uptime_seconds=time.monotonic() - self._start_s,
                server_type=VERSION,
                data_parallel_size=1,
                block_size=self._directory.resolve("").block_size,
            )

        return await rpc.answer(context, work)

    async def GetLoads(  # noqa: N802
        self, request: engine.GetLoadsRequest, context: Context
    ) -> engine.GetLoadsResponse:
        """Requests of this frontend, as one rank."""
        waiting = sum(session.status is SessionStatus.WAITING for session in self._table)
        total = len(self._table)
        load = engine.SchedulerLoad(
            num_running_reqs=total - waiting, num_waiting_reqs=waiting, num_total_reqs=total
        )
        return engine.GetLoadsResponse(
            timestamp=datetime.now(UTC).isoformat(), version=VERSION, dp_rank_count=1, loads=[load]
        )

    async def GetTokenizer(  # noqa: N802
        self, request: common.GetTokenizerRequest, context: Context
    ) -> AsyncIterator[common.GetTokenizerChunk]:
        """The files of the tokenizer, packed for each call: gateways ask once, when they start."""
        if self._model is None:
            await rpc.abort(context, UnsupportedError("this server has no tokenizer"))
        for chunk in split(await asyncio.to_thread(make_archive, self._model)):
            yield chunk

    async def _describe_model(self) -> engine.GetModelInfoResponse:
        model, facts = self._directory.resolve(""), self._facts
        tokenizer = self._services.processor.tokenizer
        # Where files lie is no tenant's business; whoever runs a router beside us has an admin key, or there are none.
        path = self._model if self._services.access.caller.is_admin else None
        eos = {} if tokenizer is None or tokenizer.eos_token_id is None else {tokenizer.eos_token_id: None}
        return engine.GetModelInfoResponse(
            model_path=str(path or model.name),
            is_generation=True,
            max_context_length=model.max_tokens,
            vocab_size=model.vocab_size,
            served_model_name=model.name,
            tokenizer_path=str(path or ""),
            model_type=facts.model_type,
            architectures=facts.architectures,
            eos_token_ids=list(dict.fromkeys(facts.eos_token_ids) | eos),
            pad_token_id=facts.pad_token_id,
            bos_token_id=facts.bos_token_id,
            max_req_input_len=model.max_tokens - 1,
        )
