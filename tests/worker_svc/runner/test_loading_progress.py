"""How far loading is, as the log tells it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from worker_svc.runner.model import lazy_weights
from worker_svc.runner.model.loading import load_model
from worker_svc.weights.source import open_weights

ModelDir = Callable[[str], Path]


class Lines(logging.Handler):
    """Bytes that were read and all bytes, of each line as it comes; `hold` makes the first line wait for `others`."""

    def __init__(self, *, hold: bool = False) -> None:
        super().__init__()
        self.told: list[tuple[float, float]] = []
        self.others = threading.Event()
        self._hold = hold

    def handle(self, record: logging.LogRecord) -> bool:
        """Without the lock that handlers have, as several of them would have no common one."""
        if "MB read" in record.msg:
            if self._hold and not self.told:
                self.others.wait(1)
            assert isinstance(record.args, tuple)
            self.told.append((float(record.args[0]) * 1e6, float(record.args[1]) * 1e6))  # type: ignore[arg-type]
        return True


@pytest.fixture
def lines() -> Iterator[Lines]:
    yield from listening(Lines())


def listening(handler: Lines) -> Iterator[Lines]:
    logger = lazy_weights.logger
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


def test_each_tenth_is_told_and_the_end(
    model_dir: ModelDir, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By several threads; each line is further than the last one, and the last one is all that the files hold."""
    monkeypatch.setattr(lazy_weights, "TOLD_BYTES", 1)
    path = model_dir("tiny-llama")
    load_model(path, dtype="float32")
    total = open_weights(path, {}).stored_bytes
    done = [each for each, _ in lines.told]
    assert {round(whole) for _, whole in lines.told} == {total}
    assert round(done[-1]) == total
    steps = [after - before for before, after in zip([0.0, *done], done, strict=False)]
    assert 3 <= len(steps) <= 10 + 1
    assert all(step >= 0.1 * total * 0.999 for step in steps[:-1]) and steps[-1] > 0


def test_a_small_model_is_told_once(model_dir: ModelDir, lines: Lines) -> None:
    load_model(model_dir("tiny-llama"), dtype="float32")
    assert len(lines.told) == 1 and lines.told[0][0] == lines.told[0][1]


def test_lines_come_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a thread is held up by while it tells."""
    monkeypatch.setattr(lazy_weights, "TOLD_BYTES", 1)
    progress = lazy_weights._Progress(100)
    lines = Lines(hold=True)
    for _ in listening(lines):
        first = threading.Thread(target=progress.add, args=(40,))
        first.start()
        while progress._done != 40:
            pass
        second = threading.Thread(target=progress.add, args=(60,))
        second.start()
        second.join(0.2)
        lines.others.set()
        first.join()
        second.join()
    assert [done for done, _ in lines.told] == [40, 100]
