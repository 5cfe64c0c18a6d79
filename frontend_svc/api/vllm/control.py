"""What vLLM's router asks beside generation: vllm.Control."""

from __future__ import annotations

import hashlib
from pathlib import Path

from frontend_svc.api.grpc.call import Context
from frontend_svc.api.vllm.call import VERSION, abort
from frontend_svc.services import Services
from signalbox.links import rpc
from signalbox.vllm import control_pb2 as control
from signalbox.vllm.control_pb2_grpc import ControlServicer as Servicer

SERVICE = "vllm.Control"
API_VERSION = "vllm"


class ControlServicer(Servicer):
    """Says what is served. With several models behind one frontend the calls fail: they cannot name one."""

    def __init__(self, services: Services, model: Path | None) -> None:
        """`model` is the directory with the tokenizer."""
        self._services = services
        self._directory = services.directory
        self._model = model

    async def GetServerInfo(  # noqa: N802
        self, request: control.GetServerInfoRequest, context: Context
    ) -> control.ServerInfo:
        """What a frontend knows; the rest is unset."""

        async def work() -> control.ServerInfo:
            model = self._directory.resolve("")
            return control.ServerInfo(
                engine_version=VERSION,
                api_version=API_VERSION,
                instance_id=_public(self._services.instance),
                max_model_len=model.max_tokens,
                kv_block_size=model.block_size,
            )

        return await rpc.answer(context, work)

    async def GetModelInfo(  # noqa: N802
        self, request: control.GetModelInfoRequest, context: Context
    ) -> control.ModelInfo:
        """Answers with the one model served."""

        async def work() -> control.ModelInfo:
            model = self._directory.resolve("")
            path = self._model if self._services.access.caller.is_admin else None
            return control.ModelInfo(
                model_id=str(path or model.name),
                served_model_name=model.name,
                supports_text_input=self._model is not None,
                supports_token_ids_input=True,
            )

        return await rpc.answer(context, work)

    async def Abort(  # noqa: N802
        self, request: control.AbortRequest, context: Context
    ) -> control.AbortResponse:
        """Cancels requests; an unknown id is one that has ended."""
        abort(self._services, request.request_ids)
        return control.AbortResponse()


def _public(instance: str) -> str:
    """What clients may know of the UUID of this process, by which workers know whose outputs are whose."""
    return hashlib.sha256(instance.encode()).hexdigest()[:32]
