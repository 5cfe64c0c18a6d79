"""Writes a line, and waits for ever with a child of its own."""

import subprocess
import time

from benchmarks.gpu.context import Context


def run(context: Context) -> None:
    child = subprocess.Popen(["sleep", "1000"])
    context.line("said", pid=child.pid)
    time.sleep(1000)
