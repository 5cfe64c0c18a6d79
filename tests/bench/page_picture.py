"""Takes the picture of the page under load: `python -m tests.bench.page_picture docs/page.png`.

A real ring with the demo model on two workers, whose KV caches are small enough to fill, and clients of three classes
whose prompts share long beginnings. Needs Chromium (tests/e2e/browser.py).
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from pathlib import Path

import httpx
from selenium.webdriver.common.by import By

from signalbox.benchmarks.serve.local_ring import LocalRing
from signalbox.cli.ring.ring import DEMO_MODEL, Ring, flags
from signalbox.cli.ring.supervisor import free_addresses
from tests.e2e.browser import open_browser

CLIENTS = 64
BEGINNINGS = [
    f'"""{name}."""\n\nfrom __future__ import annotations\n\n'
    + f"import {name}\n\n\nclass {name.title()}:\n" * 9
    for name in ("queue", "socket", "threading", "argparse", "logging")
]
NAMES = ("get", "put", "close", "read", "write", "send", "parse", "open", "reset", "join")
PROMPT = "class Stack:\n    def push(self, item):\n"


def make_ring() -> Ring:
    """Small caches, so that one sees them fill and evict."""
    scheduler, http, grpc, *workers = free_addresses(5)
    return Ring(
        model=DEMO_MODEL,
        served_model_name="demo",
        scheduler=scheduler,
        http=http,
        grpc=grpc,
        workers=tuple(workers),
        scheduler_flags=flags(max_num_seqs=24, watermark_blocks_per_seq=0),
        worker_flags=flags(num_blocks=420, num_host_blocks=400, threads=1),
    )


async def be_client(http: httpx.AsyncClient, number: int) -> None:
    """Asks again and again, until cancelled."""
    source = random.Random(number)
    await asyncio.sleep(source.uniform(0, 8))
    while True:
        prompt = source.choice(BEGINNINGS) + f"    def {source.choice(NAMES)}_{source.randrange(1000)}(self, "
        body = {
            "prompt": prompt,
            "max_tokens": source.randrange(60, 420),
            "temperature": 0.8,
            "ignore_eos": True,
            "priority": source.choice((0, 0, 0, 1, 1, 2)),
        }
        answer = await http.post("/v1/completions", json=body, timeout=600)
        answer.raise_for_status()


def look(url: str, args: argparse.Namespace) -> None:
    """Opens the page, runs a completion after a while, and takes the picture."""
    with open_browser(args.width, args.height, args.scheme) as driver:
        driver.get(url)
        time.sleep(args.seconds)
        driver.execute_script("document.getElementById('prompt').value = arguments[0]", PROMPT)
        driver.find_element(By.ID, "run").click()
        give_up = time.monotonic() + 60
        while len(driver.find_element(By.ID, "output").text) < 250 and time.monotonic() < give_up:
            time.sleep(0.1)
        args.out.parent.mkdir(parents=True, exist_ok=True)
        driver.save_screenshot(str(args.out))


async def take(ring: Ring, args: argparse.Namespace) -> None:
    """The picture, with the clients at work."""
    limits = httpx.Limits(max_connections=CLIENTS)
    async with httpx.AsyncClient(base_url=f"http://{ring.http}", limits=limits) as http:
        clients = [asyncio.create_task(be_client(http, number)) for number in range(CLIENTS)]
        looking = asyncio.create_task(asyncio.to_thread(look, f"http://{ring.http}/", args))
        try:
            await asyncio.wait([looking, *clients], return_when=asyncio.FIRST_COMPLETED)
            for task in clients:
                if task.done():
                    task.result()
            await looking
        finally:
            for task in clients:
                task.cancel()
            await asyncio.gather(*clients, return_exceptions=True)


def main() -> None:
    """One picture."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.page_picture", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--width", type=int, default=1400)
    parser.add_argument("--height", type=int, default=1180)
    parser.add_argument("--scheme", choices=("light", "dark"), default="light")
    parser.add_argument("--seconds", type=float, default=40.0, help="how long the board is watched before")
    args = parser.parse_args()
    ring = make_ring()
    asyncio.run(LocalRing(ring).use(lambda: take(ring, args)))


if __name__ == "__main__":
    main()
