"""What certificates cost: two rings, one plaintext and one by TLS, take turns with the same load.

    python -m tests.bench.tls_cost links --pairs 10     # mutual TLS between the services
    python -m tests.bench.tls_cost https --pairs 10     # clients over HTTPS, streaming

Prints one JSON object. `ratio` is the throughput by TLS over that in plaintext, the median over pairs of adjacent runs;
`cpu_ratio` the CPU time of all services, `frontend_us_per_token` what the frontend alone takes for an output token,
which over HTTPS is one event. The model is simulated and takes next to no time, so the services are all that there is.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import psutil

from signalbox.client import Client
from signalbox.links.tls.roles import Role
from tests.bench.rings import start
from tests.e2e.conftest import RunningRing
from tests.signalbox.links.tls.certificates import Certificates

OPTIONS: dict[str, Any] = {"temperature": 0, "ignore_eos": True}


async def over_grpc(ring: RunningRing, args: argparse.Namespace, salt: int) -> None:
    """All requests, over gRPC."""

    async def stream(client: Client, number: int) -> None:
        for index in range(args.requests):
            prompt = [salt % 4000 + 1, number + 1, index + 1] * 8
            await client.generate(prompt, max_tokens=args.tokens, **OPTIONS).result()

    async with Client(ring.grpc) as client:
        await asyncio.gather(*(stream(client, number) for number in range(args.streams)))


async def over_http(ring: RunningRing, args: argparse.Namespace, salt: int) -> None:
    """All requests, as streams of events. Connections are kept from run to run, as clients keep them: a handshake takes
    as much as some hundred events."""
    scheme = "https" if ring is args.secure else "http"

    async def stream(number: int) -> None:
        for index in range(args.requests):
            prompt = [salt % 4000 + 1, number + 1, index + 1] * 8
            body = OPTIONS | {"prompt": prompt, "max_tokens": args.tokens, "stream": True}
            url = f"{scheme}://{ring.http}/v1/completions"
            async with args.http.stream("POST", url, json=body) as answer:
                assert answer.status_code == httpx.codes.OK, await answer.aread()
                async for _ in answer.aiter_raw():
                    pass

    await asyncio.gather(*(stream(number) for number in range(args.streams)))


async def measure(ring: RunningRing, args: argparse.Namespace, salt: int) -> float:
    """Output tokens per second of `streams` clients, each with one request at a time."""
    started = time.perf_counter()
    await (over_grpc if args.what == "links" else over_http)(ring, args, salt)
    return float(args.streams * args.requests * args.tokens / (time.perf_counter() - started))


async def compare(plain: RunningRing, secure: RunningRing, args: argparse.Namespace) -> dict[str, Any]:
    """(plaintext, TLS) throughputs of each pair, which goes first alternates; and what CPU time both took."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx.AsyncClient(verify=args.context, timeout=60, limits=limits) as args.http:
        return await _compare(plain, secure, args)


async def _compare(plain: RunningRing, secure: RunningRing, args: argparse.Namespace) -> dict[str, Any]:
    for ring in (plain, secure):
        await measure(ring, args, 0)
    spent = [(cpu_s(ring), cpu_s(ring, "frontend_svc")) for ring in (plain, secure)]
    pairs = []
    for pair in range(1, args.pairs + 1):
        order = (plain, secure) if pair % 2 else (secure, plain)
        first, second = [await measure(ring, args, pair) for ring in order]
        pairs.append((first, second) if pair % 2 else (second, first))
    now = [(cpu_s(ring), cpu_s(ring, "frontend_svc")) for ring in (plain, secure)]
    (all_plain, plain_f), (all_secure, secure_f) = [
        (after[0] - before[0], after[1] - before[1]) for before, after in zip(spent, now, strict=True)
    ]
    ratios = sorted(by_tls / by_none for by_none, by_tls in pairs)
    tokens = args.pairs * args.streams * args.requests * args.tokens
    return {
        "ratio": round(statistics.median(ratios), 4),
        "ratios": [round(ratio, 4) for ratio in ratios],
        "tokens_per_s": [round(statistics.median(each), 1) for each in zip(*pairs, strict=True)],
        "cpu_ratio": round(all_secure / all_plain, 4),
        "frontend_us_per_token": [round(1e6 * each / tokens, 2) for each in (plain_f, secure_f)],
    }


def cpu_s(ring: RunningRing, module: str = "") -> float:
    """CPU time of its services so far, in seconds. module: of one only."""
    processes: list[psutil.Process] = [each for each in ring.children() if module in " ".join(each.cmdline())]
    times = [process.cpu_times() for process in processes]
    return float(sum(spent.user + spent.system for spent in times))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add = parser.add_argument
    add("what", choices=["links", "https"])
    add("--streams", type=int, default=32, help="clients at the same time (%(default)s)")
    add("--requests", type=int, default=2, help="requests per client and run (%(default)s)")
    add("--tokens", type=int, default=128, help="output tokens per request (%(default)s)")
    add("--pairs", type=int, default=10, help="runs of each kind (%(default)s)")
    add("--step-ms", type=float, default=1.0, help="duration of a simulated step (%(default)s)")
    args = parser.parse_args()
    common = ("--runner", "sim", "--num-blocks", "8192", "--worker-set", f"sim-base-ms={args.step_ms}")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        certificates = Certificates.make(folder)
        for role in Role:
            certificates.files(role)
        args.context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        cert, key = folder / "frontend.crt", folder / "frontend.key"
        public = ("--frontend-set", f"public-tls-cert={cert}", "--frontend-set", f"public-tls-key={key}")
        plain = start(stack, *common)
        secure = args.secure = start(
            stack, *common, *(("--tls", str(folder)) if args.what == "links" else public)
        )
        result = asyncio.run(compare(plain, secure, args))
    shown = {name: value for name, value in vars(args).items() if name not in ("context", "secure", "http")}
    print(json.dumps(result | shown))


if __name__ == "__main__":
    main()
