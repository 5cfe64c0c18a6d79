"""What one run has to do, as the command line says it and as child processes are told it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Order:
    """The settings of a run, the same for all of its processes."""

    device: str
    """cuda, or cpu: Triton's interpreter and a stand-in for CUDA graphs, at tiny sizes."""
    work_dir: Path
    """For models with random weights; removed by whoever made it."""
    model: Path | None = None
    """Directory of the model of the speed stages and of the ring; None: one with random weights."""
    presets: tuple[str, ...] = ()
    """Tiny models of the stage `right`; empty: all of the device's."""

    def to_json(self) -> str:
        """As `from_json` reads it."""
        return json.dumps(
            asdict(self) | {"work_dir": str(self.work_dir), "model": self.model and str(self.model)}
        )

    @staticmethod
    def from_json(text: str) -> Order:
        """What `to_json` wrote."""
        values = json.loads(text)
        model = values["model"]
        return Order(
            device=values["device"],
            work_dir=Path(values["work_dir"]),
            model=None if model is None else Path(model),
            presets=tuple(values["presets"]),
        )

    @property
    def is_gpu(self) -> bool:
        """Whether it runs on a GPU."""
        return self.device == "cuda"
