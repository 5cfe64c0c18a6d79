"""What a service says at /metrics."""

from __future__ import annotations

from signalbox.benchmarks.load.http_stream import HttpPool


async def read_page(address: str) -> str:
    """Asks the service whose metrics are at `host:port`."""
    pool = HttpPool(f"http://{address}")
    async with pool.connection() as connection:
        await connection.send("GET", "/metrics", b"")
        body = b"".join([chunk async for chunk in connection.chunks()])
    pool.close()
    return body.decode()
