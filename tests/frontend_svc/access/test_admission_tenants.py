"""What is kept apart between tenants, at real servers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from frontend_svc.text.tokenizer import Tokenizer
from signalbox.errors import (
    CancelledError,
)
from signalbox.links import rpc
from signalbox.protocol.hash_chain import root_hash
from signalbox.vllm import control_pb2, control_pb2_grpc, engine_pb2, engine_pb2_grpc
from tests.frontend_svc.guarded import KeyRing, Start, ask, grpc_of
from tests.frontend_svc.helpers import serve_text, until
from tests.frontend_svc.scripted_cluster import Cluster


@pytest.mark.parametrize("shared", [False, True])
async def test_tenants_have_roots_of_their_own(
    start: Start, cluster: Cluster, tokenizer: Tokenizer, ring: KeyRing, shared: bool
) -> None:
    serve_text(cluster, tokenizer, "x")
    ring.add("acme's second")
    guarded = await start(share_prefix_cache=shared)
    roots = []
    for name, salt in (("acme", ""), ("acme's second", ""), ("other", ""), ("other", "acme")):
        answer = await ask(guarded, ring.headers(name), cache_salt=salt)
        assert answer.status_code == 200
        roots.append((await cluster.scheduler.next("submit")).meta.root_hash)
    assert roots[0] == roots[1]
    assert (roots[2] == roots[0]) is shared
    assert roots[3] not in roots[:3]
    tenants = ("", "") if shared else ("acme", "other")
    assert (roots[0], roots[2]) == tuple(root_hash("toy", tenant=tenant) for tenant in tenants)


async def test_paths_of_the_server_are_told_to_admins_alone(
    start: Start, model_directory: Path, ring: KeyRing
) -> None:
    ring.add("admin", tenant="operators", admin=True)
    guarded = await start()
    path = str(model_directory.resolve())
    async with rpc.channel(f"127.0.0.1:{guarded.grpc_port}") as channel:
        control: Any = control_pb2_grpc.ControlStub(channel)
        engine: Any = engine_pb2_grpc.VllmEngineStub(channel)
        for name, told in (("acme", ("toy", "toy", "")), ("admin", (path, path, path))):
            model = await control.GetModelInfo(
                control_pb2.GetModelInfoRequest(), metadata=ring.metadata(name)
            )
            info = await engine.GetModelInfo(engine_pb2.GetModelInfoRequest(), metadata=ring.metadata(name))
            assert (model.model_id, info.model_path, info.tokenizer_path) == told


@pytest.mark.parametrize("face", ["control", "engine"])
async def test_nobody_aborts_what_is_not_theirs(
    start: Start, cluster: Cluster, ring: KeyRing, face: str
) -> None:
    ring.add("admin", tenant="operators", admin=True)
    guarded = await start()
    cluster.scheduler.on_operation = lambda operation: (
        cluster.scheduler.place(operation.submit.ref)
        if operation.WhichOneof("operation") == "submit"
        else None
    )
    async with (
        rpc.channel(f"127.0.0.1:{guarded.grpc_port}") as channel,
        grpc_of(guarded, ring.keys["acme"].text) as client,
    ):
        control: Any = control_pb2_grpc.ControlStub(channel)
        engine: Any = engine_pb2_grpc.VllmEngineStub(channel)

        async def abort(name: str) -> None:
            if face == "control":
                request = control_pb2.AbortRequest(request_ids=["mine"])
                await control.Abort(request, metadata=ring.metadata(name))
            else:
                await engine.Abort(
                    engine_pb2.AbortRequest(request_ids=["mine"]), metadata=ring.metadata(name)
                )

        for owner in ("acme", "admin"):
            generation = client.generate("the", request_id="mine")
            reading = asyncio.create_task(generation.result())
            await until(lambda: len(guarded.table) == 1)
            await abort("other")
            assert len(guarded.table) == 1
            await abort(owner)
            await until(lambda: not len(guarded.table))
            with pytest.raises(CancelledError):
                await reading
