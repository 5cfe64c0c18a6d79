"""Puts the faces for vLLM's router and for smg on the frontend's gRPC server."""

from __future__ import annotations

from collections.abc import Callable

import grpc

from frontend_svc.api.vllm import control as vllm_control
from frontend_svc.api.vllm import engine as vllm_engine
from frontend_svc.api.vllm import inference
from frontend_svc.services import Services
from signalbox.vllm.control_pb2_grpc import add_ControlServicer_to_server
from signalbox.vllm.engine_pb2_grpc import add_VllmEngineServicer_to_server
from signalbox.vllm.inference_pb2_grpc import add_InferenceServicer_to_server

SERVICES = (inference.SERVICE, vllm_control.SERVICE, vllm_engine.SERVICE)


def add_faces(server: grpc.aio.Server, services: Services, *, is_ready: Callable[[], bool]) -> None:
    """Raises StartupError when the config.json of the model is broken."""
    model = services.settings.model
    model = None if model is None else model.resolve()  # a router on this machine may open it
    add_InferenceServicer_to_server(inference.InferenceServicer(services), server)
    add_ControlServicer_to_server(vllm_control.ControlServicer(services, model), server)
    engine = vllm_engine.VllmEngineServicer(services, model, is_ready=is_ready)
    add_VllmEngineServicer_to_server(engine, server)
