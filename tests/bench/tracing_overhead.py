"""What tracing every request costs: two rings, one traced, take turns with the same load.

    python -m tests.bench.tracing_overhead --pairs 10

Prints one JSON object; `ratio` is the throughput traced over that not traced, the median over pairs of adjacent
runs. Both rings are up all the time, but only one has work. The collector keeps bytes and reads them afterwards.
`cpu_ratio` compares the CPU time of all services of a ring, exports included. With --null neither ring is traced: what
the ratios are then is the noise of the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from signalbox.client import Client
from tests.bench.rings import start
from tests.e2e.conftest import RunningRing
from tests.telemetry.conftest import environment

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
EXPORTED_S = 7.0
"""After this the last batch has left (every 5 s by default)."""


class RawReceiver(grpc.GenericRpcHandler):
    """A collector that reads nothing while the clock runs."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self._server = grpc.server(ThreadPoolExecutor(2))
        self._server.add_generic_rpc_handlers((self,))
        port = self._server.add_insecure_port("127.0.0.1:0")
        self.endpoint = f"http://127.0.0.1:{port}"
        self._server.start()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Only Export is known."""
        return grpc.unary_unary_rpc_method_handler(self._take) if details.method == EXPORT else None

    def _take(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        self.received.append(request)
        return b""

    def count_spans(self) -> int:
        """Of all services."""
        messages = map(ExportTraceServiceRequest.FromString, self.received)
        scopes = (scope for m in messages for resource in m.resource_spans for scope in resource.scope_spans)
        return sum(len(scope.spans) for scope in scopes)

    def stop(self) -> None:
        self._server.stop(0).wait()


async def measure(ring: RunningRing, args: argparse.Namespace, salt: int) -> float:
    """Output tokens per second of `streams` clients, each with one request at a time."""

    async def stream(client: Client, number: int) -> None:
        for index in range(args.requests):
            prompt = [salt % 4000 + 1, number + 1, index + 1] * 8
            options: dict[str, Any] = {"max_tokens": args.tokens, "temperature": 0, "ignore_eos": True}
            await client.generate(prompt, **options).result()

    async with Client(ring.grpc) as client:
        started = time.perf_counter()
        await asyncio.gather(*(stream(client, number) for number in range(args.streams)))
        return args.streams * args.requests * args.tokens / (time.perf_counter() - started)


async def compare(
    off: RunningRing, on: RunningRing, args: argparse.Namespace
) -> tuple[list[tuple[float, float]], tuple[float, float]]:
    """(not traced, traced) throughputs of each pair, which goes first alternates; and CPU seconds of all."""
    await measure(off, args, 0)
    await measure(on, args, 0)
    spent = [cpu_s(off), cpu_s(on)]
    pairs = []
    for pair in range(1, args.pairs + 1):
        rings = (off, on) if pair % 2 else (on, off)
        first, second = [await measure(ring, args, pair) for ring in rings]
        pairs.append((first, second) if pair % 2 else (second, first))
    await asyncio.sleep(EXPORTED_S)
    return pairs, (cpu_s(off) - spent[0], cpu_s(on) - spent[1])


def cpu_s(ring: RunningRing) -> float:
    """CPU time of its services so far."""
    times = [process.cpu_times() for process in ring.children()]
    return sum(spent.user + spent.system for spent in times)


def start_sim(stack: ExitStack, args: argparse.Namespace, endpoint: str) -> RunningRing:
    """A simulated ring that sends its traces to `endpoint`; empty: nowhere."""
    step = ("--worker-set", f"sim-base-ms={args.step_ms}")
    with environment(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint):
        return start(stack, "--runner", "sim", "--num-blocks", "8192", *step)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add("--streams", type=int, default=32, help="clients at the same time (%(default)s)")
    add("--requests", type=int, default=4, help="requests per client and run (%(default)s)")
    add("--tokens", type=int, default=128, help="output tokens per request (%(default)s)")
    add("--pairs", type=int, default=8, help="runs of each kind (%(default)s)")
    add("--step-ms", type=float, default=5.0, help="duration of a simulated step (%(default)s)")
    add("--null", action="store_true", help="trace neither ring")
    args = parser.parse_args()
    with ExitStack() as stack:
        receiver = RawReceiver()
        stack.callback(receiver.stop)
        off = start_sim(stack, args, "")
        on = start_sim(stack, args, "" if args.null else receiver.endpoint)
        pairs, cpu = asyncio.run(compare(off, on, args))
    ratios = sorted(traced / plain for plain, traced in pairs)
    result = {
        "ratio": round(statistics.median(ratios), 4),
        "ratios": [round(ratio, 4) for ratio in ratios],
        "tokens_per_s_off": round(statistics.median(plain for plain, _ in pairs), 1),
        "tokens_per_s_on": round(statistics.median(traced for _, traced in pairs), 1),
        "cpu_ratio": round(cpu[1] / cpu[0], 4),
        "cpu_s_off": round(cpu[0], 2),
        "cpu_s_on": round(cpu[1], 2),
        "num_spans": receiver.count_spans(),
        "num_traced_requests": (args.pairs + 1) * args.streams * args.requests,
    }
    print(json.dumps(result | vars(args)))


if __name__ == "__main__":
    main()
