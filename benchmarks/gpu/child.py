"""The process of some stages: `python -m benchmarks.gpu.child FD ENDS_AT ORDER NAME=MODULE...`, started by `running`.

Says over the pipe FD, a JSON line each, which stage begins, its lines, and how it ended. Ends after a stage that
raised: a device that has refused a launch refuses the next ones too."""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import TextIO

from benchmarks.gpu.context import Context, Values
from benchmarks.gpu.order import Order


def main() -> None:
    """Runs the stages that the command line names."""
    fd, ends, order, *stages = sys.argv[1:]
    ends_at: dict[str, float] = json.loads(ends)
    kept: Values = {}
    with os.fdopen(int(fd), "w", buffering=1) as pipe:
        for stage in stages:
            name, _, module = stage.partition("=")
            context = Context(Order.from_json(order), _writer(pipe), ends_at[name], kept)
            if not run_stage(pipe, name, module, context):
                break


def run_stage(pipe: TextIO, name: str, module: str, context: Context) -> bool:
    """Calls `run` of a stage's module. Returns whether it came to its end, which one that has failed can, too."""
    started, is_whole = time.monotonic(), True
    _say(pipe, {"event": "begin", "stage": name})
    try:
        importlib.import_module(module).run(context)
    except Exception as error:  # of a stage, of the product or of the device: it is what the run is to find
        traceback.print_exc()
        is_whole = False
        context.fail(f"{type(error).__name__}: {error}")
    gc.collect()
    seconds = round(time.monotonic() - started, 1)
    end = {"event": "end", "stage": name, "failures": context.failures, "seconds": seconds}
    _say(pipe, end | {"is_whole": is_whole})
    return is_whole


def _writer(pipe: TextIO) -> Callable[[Values], None]:
    return lambda values: _say(pipe, {"event": "line"} | values)


def _say(pipe: TextIO, values: Values) -> None:
    pipe.write(json.dumps(values) + "\n")


if __name__ == "__main__":
    main()
