"""Requests of the faces for vllm-router and smg, and how a call is refused."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from signalbox.vllm import engine_pb2 as engine
from signalbox.vllm import inference_pb2 as inference


def ask_router(**fields: Any) -> inference.GenerateRequest:
    return inference.GenerateRequest(**({"token_ids": {"ids": [7, 8, 9]}} | fields))


def ask_smg(**fields: Any) -> engine.GenerateRequest:
    return engine.GenerateRequest(**({"tokenized": {"input_ids": [7, 8, 9]}, "stream": True} | fields))


async def refusal(call: Any) -> tuple[grpc.StatusCode, str, str]:
    """Status, field and sentence of a call that is refused before its first message."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call.read()
    trailing = dict(caught.value.trailing_metadata())
    return caught.value.code(), str(trailing["signalbox-field"]), caught.value.details() or ""
