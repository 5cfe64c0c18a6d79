"""Peers with certificates of the ring that mean harm: what is another's they neither read, nor end, nor take (TL5).

A frontend's and a worker's, each with a name of its own. They know what no peer is told: the UUIDs of others, and the
ids and attempts of their requests.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from signalbox.links import rpc
from signalbox.links.tls import identity as identities
from signalbox.links.tls.identity import Identity
from signalbox.links.tls.roles import Role
from signalbox.v1 import (
    from_frontend_pb2,
    from_worker_pb2,
    generation_pb2,
    shared_pb2,
    to_frontend_pb2,
    worker_pb2,
)
from tests.contract.hostile_peers import SCHEDULER, WORKER
from tests.e2e.faults.relayed_ring import WORKERS, RelayedRing
from tests.e2e.faults.streams import PROMPT_TOKENS, Streams
from tests.frontend_svc.scripted_cluster import Row, make_batch
from tests.scheduler_svc.attached import make_hello
from tests.signalbox.links.tls.certificates import Certificates

pytestmark = pytest.mark.timeout(300)

NUM_STREAMS, NUM_TOKENS = 16, 300
ATTEMPTS = range(1, 80)
"""More than the ring has seen when the last test ends."""
EVIL_WORKER = "worker-7"
HEAR_S, MOST_S = 0.5, 30.0
"""Every link is given so long to be refused, or to answer; and where that is waited for."""
NUM_SLOTS = 8
OTHER_MODEL = shared_pb2.ModelEntry(model="evil", max_model_len=1024, block_size=4)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    certificates = Certificates.make(tmp_path_factory.mktemp("certs"))
    for role in Role:
        certificates.files(role, instance="honest" if role is Role.FRONTEND else "")
    certificates.files(Role.FRONTEND, "evil-frontend", instance="evil")
    certificates.files(Role.WORKER, "evil-worker", instance=EVIL_WORKER)
    return certificates


@pytest.fixture(scope="module")
def ring(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RelayedRing]:
    ring = RelayedRing(tmp_path_factory.mktemp("ring"), certificates.folder)
    for name in ("scheduler", "relay", *WORKERS, "frontend"):
        ring.start(name)
    try:
        asyncio.run(ring.ready())
        yield ring
    finally:
        statuses = ring.stop()
    assert set(statuses.values()) == {0}, statuses
    assert not [name for name in statuses if "Traceback" in ring.log(name)]


@pytest.fixture(autouse=True)
def nobody() -> Iterator[None]:
    yield
    identities.take_on(None)


def honest_uuid(ring: RelayedRing) -> str:
    """Of the frontend: the first that has attached."""
    found = re.search(r"frontend (\S+) attached with ", ring.log("scheduler"))
    assert found
    return found[1]


class Told:
    """What came of what a peer said on one stream."""

    def __init__(self) -> None:
        self.code = grpc.StatusCode.OK
        """OK: it was not refused."""
        self.answers: list[bytes] = []


async def say(
    address: str, role: Role, method: str, messages: Sequence[Message], until: asyncio.Event | None = None
) -> Told:
    """Says all of it over one stream as who we are now, and hears what comes: for a while, or `until`."""
    told = Told()
    async with rpc.channel(address, role) as channel:
        call = channel.stream_stream(method)()

        async def hear() -> None:
            while (answer := await call.read()) is not grpc.aio.EOF:
                told.answers.append(answer)

        hearing = asyncio.create_task(hear())
        for message in messages:
            with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await call.write(message.SerializeToString())
        waiting = [hearing, *([asyncio.create_task(until.wait())] if until else [])]
        timeout = HEAR_S if until is None else MOST_S
        await asyncio.wait(waiting, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for other in waiting[1:]:
            other.cancel()
        if hearing.done() and (error := hearing.exception()) is not None:
            assert isinstance(error, grpc.aio.AioRpcError)
            told.code = error.code()
        call.cancel()
        await asyncio.wait([hearing])
    return told


def refs(streams: Streams) -> list[shared_pb2.RequestRef]:
    """Of all requests that run, by every number that their attempts may have."""
    return [
        shared_pb2.RequestRef(request_id=request_id, attempt=attempt)
        for request_id in streams.request_ids
        for attempt in ATTEMPTS
    ]


def orders_of(refs: list[shared_pb2.RequestRef]) -> from_frontend_pb2.AttachFrontendRequest:
    """To a scheduler: an end to each of them, in every way there is."""
    operation = from_frontend_pb2.FrontendOperation
    operations = []
    for ref in refs:
        operations.append(operation(pause=from_frontend_pb2.PauseRequest(ref=ref)))
        check = from_frontend_pb2.CheckRequest(ref=ref, worker_id=WORKERS[0], worker_instance="another")
        operations.append(operation(check=check))
        operations.append(operation(finish=from_frontend_pb2.FinishRequest(ref=ref)))
        operations.append(operation(cancel=from_frontend_pb2.CancelRequest(ref=ref)))
    return from_frontend_pb2.AttachFrontendRequest(operations=operations)


def slanders(directory: to_frontend_pb2.WorkerDirectory) -> list[from_frontend_pb2.AttachFrontendRequest]:
    """To a scheduler: that no worker is to be reached, said in every way."""
    return [
        from_frontend_pb2.AttachFrontendRequest(
            operations=[
                from_frontend_pb2.FrontendOperation(
                    reach=from_frontend_pb2.WorkerReach(
                        worker=shared_pb2.WorkerRef(
                            worker_id=worker.worker_id, worker_instance=worker.worker_instance
                        ),
                        state=state,
                    )
                )
                for worker in directory.workers
            ]
        )
        for state in from_frontend_pb2.WorkerReachState.values()
    ]


def directory_in(told: Told) -> to_frontend_pb2.WorkerDirectory:
    for answer in told.answers:
        response = to_frontend_pb2.AttachFrontendResponse.FromString(answer)
        if response.HasField("workers"):
            return response.workers
    raise AssertionError("no directory came")


def greeting(uuid: str, *live: shared_pb2.RequestRef) -> from_frontend_pb2.AttachFrontendRequest:
    hello = from_frontend_pb2.FrontendHello(frontend_instance=uuid, live=live, paused=live)
    return from_frontend_pb2.AttachFrontendRequest(hello=hello)


async def read_outputs(ring: RelayedRing, uuid: str, *, acknowledged: int = 0) -> list[Told]:
    """From both workers, with orders about every attempt."""
    actions = [action for action in worker_pb2.AttemptAction.values() if action]
    first = worker_pb2.StreamOutputsRequest(frontend_instance=uuid, acknowledged=acknowledged)
    first.operations.extend(
        worker_pb2.AttemptOperation(attempt=attempt, action=action)  # type: ignore[arg-type]
        for attempt in ATTEMPTS
        for action in actions
    )
    return [
        await say(ring.listening[name], Role.WORKER, f"{WORKER}StreamOutputs", [first]) for name in WORKERS
    ]


async def test_a_frontend_neither_reads_nor_ends_nor_takes_what_is_another_s(
    ring: RelayedRing, certificates: Certificates
) -> None:
    """TL5. With the other's UUID: refused. With one of its own it is heard, about requests of its own only; while there
    is no scheduler, workers take orders (AttemptOperation), and these are of its own, too."""
    uuid, attach = honest_uuid(ring), f"{SCHEDULER}AttachFrontend"
    streams = Streams(ring.client(), NUM_STREAMS, num_tokens=NUM_TOKENS, seed=1)
    await streams.all_run()
    identities.take_on(certificates.identity(Role.FRONTEND, "evil-frontend"))
    taken = await say(ring.scheduler, Role.SCHEDULER, attach, [greeting(uuid)])
    read = await read_outputs(ring, uuid, acknowledged=1 << 40)
    assert {told.code for told in (taken, *read)} == {grpc.StatusCode.PERMISSION_DENIED}
    assert not any(told.answers for told in (taken, *read))

    named = refs(streams)
    told = await say(ring.scheduler, Role.SCHEDULER, attach, [greeting("evil"), orders_of(named)])
    directory = directory_in(told)
    assert {worker.worker_id for worker in directory.workers} == set(WORKERS)
    again = [greeting("evil-too", *named), *slanders(directory)]
    assert (await say(ring.scheduler, Role.SCHEDULER, attach, again)).answers
    for told in await read_outputs(ring, "evil"):
        assert told.answers and not any(
            worker_pb2.StreamOutputsResponse.FromString(answer).batches for answer in told.answers
        )
    await streams.all_run()
    ring.kill("scheduler")
    for told in await read_outputs(ring, "evil"):
        assert told.answers
    ring.start("scheduler")
    await streams.assert_all_end_once()


def hold(snapshot: from_worker_pb2.WorkerSnapshot, uuid: str, request_ids: Sequence[str], model: str) -> None:
    """Claims the requests of a frontend, as many as a worker has slots, in the middle of their outputs."""
    snapshot.scheduler_epoch, snapshot.last_step_id = 1, 5
    for slot, request_id in enumerate(request_ids[:NUM_SLOTS]):
        entry = snapshot.slots.add(
            slot=slot, frontend_instance=uuid, status=from_worker_pb2.SLOT_STATUS_DECODE
        )
        entry.ref.request_id, entry.ref.attempt = request_id, slot + 1
        entry.num_computed_tokens, entry.num_output_tokens, entry.prefill_target = 10, 2, PROMPT_TOKENS
        entry.block_ids = b"".join(block.to_bytes(4, "little") for block in range(3 * slot, 3 * slot + 3))
        entry.scheduler_meta = from_frontend_pb2.RequestMeta(
            model=model, num_prompt_tokens=PROMPT_TOKENS, max_tokens=NUM_TOKENS, hash_block_size=4
        ).SerializeToString()


def lies(instance: str) -> Iterator[worker_pb2.StreamOutputsResponse]:
    """A token and an end for every attempt, wherever its output has got to."""
    yield worker_pb2.StreamOutputsResponse(worker_instance=instance, log_number=1)
    for start in range(NUM_TOKENS):
        rows = [Row(attempt, start, [7], reason=generation_pb2.FINISH_REASON_STOP) for attempt in ATTEMPTS]
        yield worker_pb2.StreamOutputsResponse(batches=[make_batch(start + 1, rows)])


@asynccontextmanager
async def lying(instance: str, identity: Identity) -> AsyncIterator[tuple[str, asyncio.Event]]:
    """A worker process as frontends see it: its address, and whether one has heard all that it says."""
    heard = asyncio.Event()

    async def stream(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        for response in lies(instance):
            yield response.SerializeToString()
        heard.set()
        await asyncio.sleep(HEAR_S)

    server = grpc.aio.server()
    handler = grpc.stream_stream_rpc_method_handler(stream)
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("signalbox.v1.WorkerService", {"StreamOutputs": handler})]
    )
    port = server.add_secure_port("127.0.0.1:0", identity.for_server())
    await server.start()
    try:
        yield f"127.0.0.1:{port}", heard
    finally:
        await server.stop(0)


async def test_a_worker_neither_takes_a_place_nor_speaks_for_requests_of_another(
    ring: RelayedRing, certificates: Certificates
) -> None:
    """TL5, H5. Under another's id, or as another's process: refused. As itself it may say that it holds requests of
    others, and make tokens and ends for them: nobody believes it."""
    uuid, attach = honest_uuid(ring), f"{SCHEDULER}AttachWorker"
    identities.take_on(certificates.identity(Role.OPERATOR))
    await ring.attached(*WORKERS)
    streams = Streams(ring.client(), NUM_STREAMS, num_tokens=NUM_TOKENS, seed=2)
    await streams.all_run()
    identities.take_on(certificates.identity(Role.FRONTEND, "evil-frontend"))
    hello = f"{SCHEDULER}AttachFrontend"
    directory = directory_in(await say(ring.scheduler, Role.SCHEDULER, hello, [greeting("evil")]))
    true = {worker.worker_id: worker for worker in directory.workers}
    evil = certificates.identity(Role.WORKER, "evil-worker")
    identities.take_on(evil)
    place = make_hello(WORKERS[0], worker_instance="another")
    for address, role in ((ring.scheduler, Role.SCHEDULER), (ring.relay, Role.RELAY)):
        told = await say(address, role, attach, [place])
        assert (told.code, told.answers) == (grpc.StatusCode.PERMISSION_DENIED, [])
    process = make_hello(EVIL_WORKER, worker_instance=true[WORKERS[0]].worker_instance)
    told = await say(ring.scheduler, Role.SCHEDULER, attach, [process])
    assert (told.code, told.answers) == (grpc.StatusCode.ALREADY_EXISTS, [])

    for model in (true[WORKERS[0]].model, OTHER_MODEL):
        instance = f"evil-{model.model}"
        async with lying(instance, evil) as (address, heard):
            claim = make_hello(EVIL_WORKER, address=address, worker_instance=instance)
            claim.hello.model.CopyFrom(model)
            hold(claim.hello.snapshot, uuid, streams.request_ids, model.model)
            told = await say(ring.scheduler, Role.SCHEDULER, attach, [claim], until=heard)
            assert heard.is_set(), told.code
    await streams.assert_all_end_once()
