"""A real model gives the same tokens while its worker has no scheduler."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.worker_svc.lone_ring import LoneRing
from tests.worker_svc.runner.reference import assert_greedy
from tests.worker_svc.runner.reference import make_runner as make_torch_runner
from tools.make_random_model import make_model


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model("tiny-llama", tmp_path_factory.mktemp("model"), seed=1)


def test_a_model_gives_the_same_tokens_alone(model_dir: Path) -> None:
    """A2: on a real model."""
    runner = make_torch_runner(model_dir, max_model_len=120, num_blocks=80)
    ring = LoneRing(runner)
    try:
        rng = np.random.default_rng(5)
        clients = [ring.submit(rng.integers(3, 500, length).tolist(), 40) for length in (18, 33, 24)]
        while not all(len(client.output) >= 3 for client in clients):
            ring.step()
        ring.lend(60)
        ring.lose_scheduler()
        ring.run_alone(15)
        ring.find_scheduler()
        ring.run()
    finally:
        ring.close()
    for client in clients:
        assert len(client.output) == 40
        assert_greedy(client.output, model_dir, client.prompt, 40)
