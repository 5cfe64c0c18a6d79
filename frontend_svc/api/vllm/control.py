"""What vLLM's router asks beside generation: vllm.Control."""

from __future__ import annotations

from pathlib import Path

from frontend_svc.access.gate import Gate
from frontend_svc.api.grpc.call import Context
from frontend_svc.api.vllm.call import VERSION, abort
from frontend_svc.models import ModelDirectory
from frontend_svc.requests.sessions import SessionTable
from signalbox.links import rpc
from signalbox.vllm import control_pb2 as control
from signalbox.vllm.control_pb2_grpc import ControlServicer as Servicer

SERVICE = "vllm.Control"
API_VERSION = "vllm"


class ControlServicer(Servicer):
    """Says what is served. With several models behind one frontend the calls fail: they cannot name one."""

    def __init__(
        self, table: SessionTable, directory: ModelDirectory, instance: str, model: Path | None, gate: Gate
    ) -> None:
        """`instance` is the frontend's UUID, `model` the directory with its tokenizer."""
        self._table = table
        self._directory = directory
        self._instance = instance
        self._model = model
        self._gate = gate

    async def GetServerInfo(  # noqa: N802
        self, request: control.GetServerInfoRequest, context: Context
    ) -> control.ServerInfo:
        """What a frontend knows; the rest is unset."""

        async def work() -> control.ServerInfo:
            model = self._directory.resolve("")
            return control.ServerInfo(
                engine_version=VERSION,
                api_version=API_VERSION,
                instance_id=self._instance,
                max_model_len=model.max_tokens,
                kv_block_size=model.block_size,
            )

        return await rpc.answer(context, work)

    async def GetModelInfo(  # noqa: N802
        self, request: control.GetModelInfoRequest, context: Context
    ) -> control.ModelInfo:
        """The one model served."""

        async def work() -> control.ModelInfo:
            model = self._directory.resolve("")
            return control.ModelInfo(
                model_id=str(self._model or model.name),
                served_model_name=model.name,
                supports_text_input=self._model is not None,
                supports_token_ids_input=True,
            )

        return await rpc.answer(context, work)

    async def Abort(  # noqa: N802
        self, request: control.AbortRequest, context: Context
    ) -> control.AbortResponse:
        """Cancels requests; an unknown id is one that has ended."""
        abort(self._table, request.request_ids, self._gate.caller)
        return control.AbortResponse()
