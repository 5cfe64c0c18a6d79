"""Puts the faces for vLLM's router and for smg on the frontend's gRPC server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import grpc

from frontend_svc.api.vllm import control as vllm_control
from frontend_svc.api.vllm import engine as vllm_engine
from frontend_svc.api.vllm import inference
from frontend_svc.metrics import Metrics
from frontend_svc.models import ModelDirectory
from frontend_svc.requests.processor import RequestProcessor
from frontend_svc.requests.sessions import SessionTable
from signalbox.vllm.control_pb2_grpc import add_ControlServicer_to_server
from signalbox.vllm.engine_pb2_grpc import add_VllmEngineServicer_to_server
from signalbox.vllm.inference_pb2_grpc import add_InferenceServicer_to_server

SERVICES = (inference.SERVICE, vllm_control.SERVICE, vllm_engine.SERVICE)


def add_faces(
    server: grpc.aio.Server,
    processor: RequestProcessor,
    metrics: Metrics,
    table: SessionTable,
    directory: ModelDirectory,
    *,
    instance: str,
    model: Path | None,
    is_ready: Callable[[], bool],
) -> None:
    """`instance` is the frontend's UUID, `model` the directory with its tokenizer. Raises StartupError when the
    config.json there is broken."""
    model = None if model is None else model.resolve()  # a router on this machine may open it
    add_InferenceServicer_to_server(inference.InferenceServicer(processor, metrics), server)
    control = vllm_control.ControlServicer(table, directory, instance, model, processor.gate)
    add_ControlServicer_to_server(control, server)
    engine = vllm_engine.VllmEngineServicer(
        processor, metrics, table, directory, model=model, is_ready=is_ready
    )
    add_VllmEngineServicer_to_server(engine, server)
