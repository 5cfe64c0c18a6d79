"""What strangers at the gRPC port cost others: streams over HTTP, and a client of gRPC that tries again.

`python -m tests.contract.strangers_bench` (about four minutes, a simulated model) runs a ring as `signalbox up` does
where strangers reach gRPC: two frontends, of which that of gRPC has 512 MiB, in a memory cgroup of its own with
`--cgroup` (root), else by its setting. Everything is on 127.0.0.0/8 and bounded in time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx

from signalbox.benchmarks.serve.local_ring import LocalRing
from signalbox.cli.ring.ring import DEMO_MODEL, Ring
from signalbox.cli.ring.supervisor import Service
from signalbox.client import Client
from signalbox.errors import UnavailableError
from tests.ports import free_ports

LIMIT_BYTES = 512 << 20
"""Of memory for the frontend of gRPC: half of what the manifests give it."""
STEP_MS = 20
PROMPT, OUTPUT_TOKENS = [5, 6, 7], 8
CALL_S = 5.0
"""Within which an honest call has to end, tried again as often as it takes."""
ENDS = "signalbox_frontend_memory_ends_total"
FLOODS: dict[str, tuple[str, ...]] = {
    "1 name, fast": ("--names=1",),
    "3,000 names, fast": ("--names=3000",),
    "16,000 names, fast": ("--names=16000",),
    "1 name, slow": ("--names=1", "--pause-s=0.2"),
    "3,000 names, slow": ("--names=3000", "--pause-s=0.2"),
    "16,000 names, slow": ("--names=16000", "--pause-s=0.2"),
    "CONTINUATION without end, fast": ("--endless",),
    "CONTINUATION without end, slow": ("--endless", "--pause-s=0.2"),
}


@dataclass
class Outcome:
    """What was seen during one flood."""

    gaps_s: list[float] = field(default_factory=list)
    """Between two events of the HTTP stream."""
    calls_s: list[float] = field(default_factory=list)
    """Of each honest call, what was tried in vain included."""
    failed: int = 0
    """Honest calls that did not end in time."""
    restarts: int = 0
    most_mib: int = 0
    """Most resident memory of the frontend of gRPC."""

    @property
    def p99_ms(self) -> float:
        """Between two events of the HTTP stream."""
        return 1e3 * sorted(self.gaps_s)[int(0.99 * (len(self.gaps_s) - 1))]


@dataclass(frozen=True)
class ApartRing(Ring):
    """A ring whose frontend of gRPC is started in a memory cgroup."""

    cgroup: Path | None = None

    def stages(self) -> list[list[Service]]:
        """See Ring."""
        *others, frontends = super().stages()
        if self.cgroup is None:
            return [*others, frontends]
        enter = ("sh", "-c", f'echo $$ > {self.cgroup}/cgroup.procs && exec "$@"', "sh")
        return [
            *others,
            [
                replace(each, argv=(*enter, *each.argv)) if each.name == "frontend-grpc" else each
                for each in frontends
            ],
        ]


def make_ring(limit_bytes: int, cgroup: Path | None = None, bans: Path | None = None) -> ApartRing:
    """A ring on free ports, with a simulated model. bans: directory for `Ring.bans`."""
    scheduler, http, grpc, worker, health, metrics, *_ = (f"127.0.0.1:{port}" for port in free_ports(6 + 4))
    return ApartRing(
        model=DEMO_MODEL,
        served_model_name="demo",
        scheduler=scheduler,
        http=http,
        grpc=grpc,
        workers=(worker,),
        grpc_health=(health,),
        worker_flags=("--runner=sim", f"--sim-base-ms={STEP_MS}", "--threads=1"),
        frontend_flags=() if cgroup is not None else (f"--memory-limit-bytes={limit_bytes}",),
        first_metrics=metrics,
        cgroup=cgroup,
        bans=bans,
    )


async def measure(
    ring: ApartRing,
    flood: Sequence[str] | None,
    seconds: float,
    num_calls: int,
    watched: ApartRing | None = None,
    call_s: float = CALL_S,
) -> Outcome:
    """One flood beside a stream and honest calls; None: nobody floods. watched: whose memory is read; None: the ring's
    that is dialled. call_s: a call that takes longer, with all its attempts, has failed."""
    outcome = Outcome()
    before = await memory_ends(ring)
    port = ring.grpc.rpartition(":")[2]
    command = (sys.executable, "-m", "tests.contract.strangers", port, f"--seconds={seconds}", *(flood or ()))
    strangers = await asyncio.create_subprocess_exec(*command) if flood is not None else None
    watching = asyncio.create_task(keep_watching(watched or ring, outcome))
    try:
        await asyncio.gather(
            stream(ring, outcome, seconds), be_honest(ring, outcome, seconds, num_calls, call_s)
        )
        if strangers is not None:
            await asyncio.wait_for(strangers.wait(), seconds + 60)
    finally:
        watching.cancel()
        if strangers is not None and strangers.returncode is None:
            strangers.kill()
    outcome.restarts = await memory_ends(ring) - before
    return outcome


async def stream(ring: ApartRing, outcome: Outcome, seconds: float) -> None:
    """One client's stream over HTTP, whose gaps count."""
    body = {"prompt": PROMPT, "stream": True, "ignore_eos": True, "max_tokens": int(seconds * 1e3 / STEP_MS)}
    async with (
        httpx.AsyncClient(timeout=60) as http,
        http.stream("POST", f"http://{ring.http}/v1/completions", json=body) as answer,
    ):
        last = 0.0
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            assert "error" not in json.loads(line[6:]), line
            now = time.perf_counter()
            if last:
                outcome.gaps_s.append(now - last)
            last = now
    assert last, "the stream had no event"


async def be_honest(ring: ApartRing, outcome: Outcome, seconds: float, num_calls: int, call_s: float) -> None:
    """Calls over gRPC, spread over the time, each tried again until it ends."""
    async with Client(ring.grpc, api_key="") as client:
        for index in range(num_calls):
            began = time.perf_counter()
            if await ask_until_answered(client, call_s):
                outcome.calls_s.append(time.perf_counter() - began)
            else:
                outcome.failed += 1
            left_s = (index + 1) * seconds / num_calls - sum(outcome.calls_s) - outcome.failed * call_s
            await asyncio.sleep(max(0.0, min(left_s, seconds / num_calls)))


async def ask_until_answered(client: Client, call_s: float) -> bool:
    """False: not within `call_s`."""
    with suppress(TimeoutError):
        async with asyncio.timeout(call_s):
            while True:
                try:
                    answer = client.generate(PROMPT, max_tokens=OUTPUT_TOKENS, ignore_eos=True)
                    result = await answer.result()
                except UnavailableError:
                    await asyncio.sleep(0.1)
                    continue
                assert len(result.token_ids) == OUTPUT_TOKENS
                return True
    return False


async def memory_ends(ring: ApartRing) -> int:
    """How many processes of the frontend of gRPC have ended for memory so far."""
    page = ""
    async with httpx.AsyncClient(timeout=5) as http, asyncio.timeout(60):
        while ENDS not in page:
            with suppress(httpx.HTTPError):
                page = (await http.get(f"http://{ring.metrics['frontend-grpc']}/metrics")).text
            await asyncio.sleep(0.05)
    return int(next(float(line.split()[1]) for line in page.splitlines() if line.startswith(ENDS)))


async def keep_watching(ring: ApartRing, outcome: Outcome) -> None:
    """Reads what memory the frontend of gRPC holds."""
    while True:
        outcome.most_mib = max(outcome.most_mib, await resident_mib(ring))
        await asyncio.sleep(0.1)


async def resident_mib(ring: ApartRing) -> int:
    """Of the frontend of gRPC, as its page of metrics says; 0: it has none now."""
    async with httpx.AsyncClient(timeout=5) as http:
        with suppress(httpx.HTTPError, StopIteration):
            page = (await http.get(f"http://{ring.metrics['frontend-grpc']}/metrics")).text
            line = next(
                line for line in page.splitlines() if line.startswith("process_resident_memory_bytes")
            )
            return int(float(line.split()[1])) >> 20
    return 0


def make_cgroup(limit_bytes: int) -> Path:
    """A memory cgroup of version 1 or 2 with a limit. Raises OSError without the right to make one."""
    first = Path("/sys/fs/cgroup/memory")
    is_first = (first / "cgroup.procs").exists()
    directory = (first if is_first else Path("/sys/fs/cgroup")) / f"signalbox-strangers-{time.time_ns()}"
    directory.mkdir()
    (directory / ("memory.limit_in_bytes" if is_first else "memory.max")).write_text(str(limit_bytes))
    return directory


def num_killed(cgroup: Path) -> int:
    """Processes of it that the kernel has killed for want of memory."""
    found = 0
    for name in ("memory.oom_control", "memory.events"):
        with suppress(OSError):
            for line in (cgroup / name).read_text().splitlines():
                key, _, value = line.partition(" ")
                found += int(value) if key == "oom_kill" else 0
    return found


async def compare(ring: ApartRing, seconds: float, num_calls: int, names: Sequence[str]) -> bool:
    """Prints a line for each flood; whether all of them kept to what is promised."""
    alone = await measure(ring, None, seconds, num_calls)
    print(f"nobody floods: p99 between tokens {alone.p99_ms:.1f} ms", flush=True)
    is_good = True
    for number, name in enumerate(names, 1):  # from addresses that nothing is known of
        seen = await measure(ring, (*FLOODS[name], f"--net={number}"), seconds, num_calls)
        good = not seen.failed and seen.p99_ms <= 2 * alone.p99_ms and seen.restarts * 60 / seconds <= 2
        is_good &= good
        slowest = max(seen.calls_s, default=0.0)
        print(
            f"{name}: p99 {seen.p99_ms:.1f} ms ({seen.p99_ms / alone.p99_ms:.2f}), "
            f"{len(seen.calls_s)} of {num_calls} calls within {CALL_S:g} s, the slowest {slowest:.2f} s, "
            f"{seen.restarts} restarts, at most {seen.most_mib} MiB{'' if good else '  <-- not as promised'}",
            flush=True,
        )
    return is_good


def main() -> int:
    """Exit status 1 when anything was not as promised."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="of each flood")
    parser.add_argument("--calls", type=int, default=20, help="of the honest client, during each")
    parser.add_argument("--cgroup", action="store_true", help="limit memory by a cgroup (root)")
    parser.add_argument("--only", choices=FLOODS, action="append", help="these floods")
    args = parser.parse_args()
    cgroup = make_cgroup(LIMIT_BYTES) if args.cgroup else None
    bans = tempfile.TemporaryDirectory()
    ring = make_ring(LIMIT_BYTES, cgroup, Path(bans.name))

    async def work() -> bool:
        return await compare(ring, args.seconds, args.calls, args.only or list(FLOODS))

    try:
        is_good = asyncio.run(LocalRing(ring).use(work))
        if cgroup is not None:
            print(f"killed by the kernel: {num_killed(cgroup)}")
            is_good &= num_killed(cgroup) == 0
    finally:
        bans.cleanup()
        if cgroup is not None:
            cgroup.rmdir()
    return 0 if is_good else 1


if __name__ == "__main__":
    raise SystemExit(main())
