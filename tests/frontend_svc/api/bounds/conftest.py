"""A listener for the tests of this room."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from frontend_svc.api.http.server import HttpServer
from tests.frontend_svc.api.bounds.served import BOUNDS, Served


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    served = Served()
    server = HttpServer(served, bounds=BOUNDS, on_refused=served.refused.append)
    served.port = await server.start("127.0.0.1:0")
    yield served
    await server.stop()
