"""`python -m tests.zygote.probe [draws|guarded|WAY]`: prints as JSON what a process can know of itself, or ends in a
way."""

from __future__ import annotations

import atexit
import gc
import json
import os
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any


def describe() -> dict[str, Any]:
    """All that is to be the same in a fork and in a fresh process with the same parent."""
    main: Any = sys.modules["__main__"]
    return {
        "argv": sys.argv,
        "orig_argv": sys.orig_argv,
        "command line": Path("/proc/self/cmdline").read_text(),
        "name": Path("/proc/self/comm").read_text(),
        "main": [main.__name__, main.__file__, main.__spec__.name, main.__spec__.parent],
        "is main": describe.__module__,
        "path": sys.path,
        "environment": dict(os.environ),
        "cwd": os.getcwd(),  # noqa: PTH109
        "parent": os.getppid(),
        "leads its session": os.getsid(0) == os.getpid(),
        "leads its group": os.getpgid(0) == os.getpid(),
        "handlers": {
            number.name: str(signal.getsignal(number)).partition(" at ")[0] for number in signal.Signals
        },
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "files": {fd: str(Path(f"/proc/self/fd/{fd}").readlink()) for fd in open_files()},
        "streams": [
            [stream.name, stream.mode, stream.encoding, stream.errors, stream.line_buffering, stream.closed]
            for stream in (sys.stdin, sys.stdout, sys.stderr)
        ],
        "threads": [thread.name for thread in threading.enumerate()],
        "collects": [gc.isenabled(), gc.get_threshold()],
        "switches": sys.getswitchinterval(),
        "umask": os.umask(0o022),
        "flags": str(sys.flags),
    }


def open_files() -> list[int]:
    return [int(fd) for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")]  # noqa: PTH110, PTH208


def drawn() -> list[float]:
    """From the generators that every module of a process shares."""
    import numpy as np  # noqa: PLC0415
    import torch  # noqa: PLC0415

    return [random.random(), float(np.random.random()), float(torch.rand(()))]


def guarded() -> dict[str, int]:
    """Objects that collections leave out, and those that they walk over, in a worker beside its guardian."""
    from signalbox.protocol.enums import WorkerExit  # noqa: PLC0415
    from worker_svc.guardian import guardian  # noqa: PLC0415
    from worker_svc.guardian.ending import Ending  # noqa: PLC0415
    from worker_svc.guardian.telling import Ward  # noqa: PLC0415

    report = guardian.start(Ward("w", "i", ("127.0.0.1:1",)), is_parent=False)
    found = {"set aside": gc.get_freeze_count(), "collected over": len(gc.get_objects())}
    report.say(Ending(WorkerExit.STOPPED, "it was a probe"))
    return found


def end(way: str) -> None:
    """As its name says; a fresh process ends with the same status and the same words."""
    atexit.register(print, "at exit")
    if way == "with a thread":
        threading.Timer(0.1, print, ["thread"]).start()
    elif way == "with words":
        raise SystemExit("words")
    elif way == "with a status":
        raise SystemExit(3)
    elif way == "with an error":
        raise ValueError("wrong")
    elif way == "interrupted":
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10)
    elif way == "killed":
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    if sys.argv[1:] == ["draws"]:
        print(json.dumps(drawn()))
    elif sys.argv[1:] == ["guarded"]:
        print(json.dumps(guarded()))
    elif sys.argv[1:]:
        end(sys.argv[1])
    else:
        print(json.dumps(describe()))
