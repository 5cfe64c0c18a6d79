"""Measures what loading a model has in memory at most, beside what the model has when it is served.

    python -m signalbox.benchmarks.runner.load_memory --model DIR --quantization int4 --threads 2

Read every 5 ms from /proc/self/status: memory of the process's own (`own`: RssAnon and, of no file, RssShmem) and pages
of files that are mapped (`file`: RssFile), which the system can take back. `served` is what the process has gained once
the model is optimised for the CPU and checked. Pages of the files that nobody maps any more are the system's cache, and
not counted. One JSON object.
"""

from __future__ import annotations

import os

from signalbox.runtime.cores import spin_count

# As the worker service does, for OpenMP, before torch is there.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", spin_count())

import argparse
import ctypes
import gc
import json
import re
import threading
import time
from pathlib import Path

import torch

from signalbox.cli.commands.arguments import NUMBER_TYPES, number_type
from signalbox.cli.models.name import model_directory
from worker_svc.runner.model.kept_weights import Quantization
from worker_svc.runner.torch_runner import load_checked

BLOCK_SIZE = 16
INTERVAL_S = 0.005
PIECE_BYTES = 1 << 24
SUFFIXES = (".safetensors", ".gguf")
STATUS = Path("/proc/self/status")
FIELDS = re.compile(r"^(RssAnon|RssFile|RssShmem):\s+(\d+) kB$", re.MULTILINE)


def resident() -> dict[str, int]:
    """Bytes of this process in memory: its own, and those of mapped files."""
    found = {name: int(kilobytes) << 10 for name, kilobytes in FIELDS.findall(STATUS.read_text())}
    return {"own": found["RssAnon"] + found["RssShmem"], "file": found["RssFile"]}


class Peaks(threading.Thread):
    """Looks at the process's memory until it is stopped."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.before = resident()
        self.most = dict.fromkeys((*self.before, "both"), 0)
        """Most bytes gained: of each kind, and of both at a time."""
        self._stopped = threading.Event()

    def run(self) -> None:
        """Until `stop`."""
        while not self._stopped.wait(INTERVAL_S):
            gained = self.gained()
            for name, most in self.most.items():
                self.most[name] = max(most, gained[name])

    def gained(self) -> dict[str, int]:
        """Bytes since the beginning, of each kind and of both."""
        gained = {name: now - self.before[name] for name, now in resident().items()}
        return gained | {"both": sum(gained.values())}

    def stop(self) -> None:
        """Ends it."""
        self._stopped.set()
        self.join()


def read(model: Path) -> None:
    """Reads all weights once, of a directory or one file."""
    buffer = bytearray(PIECE_BYTES)
    inside = (
        sorted(path for path in model.iterdir() if path.suffix in SUFFIXES) if model.is_dir() else [model]
    )
    for path in inside:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=model_directory, required=True)
    parser.add_argument("--dtype", default="bfloat16", type=number_type, choices=NUMBER_TYPES[1:])
    parser.add_argument("--quantization", default="auto", choices=[str(each) for each in Quantization])
    parser.add_argument("--threads", type=int, default=None)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    began_s = time.monotonic()
    read(options.model)
    read_s = time.monotonic() - began_s
    peaks = Peaks()
    peaks.start()
    began_s = time.monotonic()
    model = load_checked(options.model, options.dtype, "cpu", BLOCK_SIZE, Quantization(options.quantization))
    load_s = time.monotonic() - began_s
    peaks.stop()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    served = peaks.gained()
    print(
        json.dumps(
            {"model": options.model.name, "quantization": options.quantization, "kept": model.kept}
            | {f"peak_{name}_mb": round(value / 1e6) for name, value in peaks.most.items()}
            | {f"served_{name}_mb": round(value / 1e6) for name, value in served.items()}
            | {"read_s": round(read_s, 1), "load_s": round(load_s, 1)}
            | {"peak_of_served": round(peaks.most["both"] / served["both"], 2)}
        )
    )


if __name__ == "__main__":
    main()
