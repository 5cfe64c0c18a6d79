"""Ends its process as a kernel that reads what is not there does."""

import os
import signal

from benchmarks.gpu.context import Context


def run(context: Context) -> None:
    print("an illegal memory access", flush=True)
    os.kill(os.getpid(), signal.SIGABRT)
