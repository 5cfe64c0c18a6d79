"""The frame of a service process: it ends with whoever started it, and collects no garbage among its modules."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil
import pytest

from signalbox.runtime.process import PARENT
from tests.signalbox.cli.fake_services import wait_until

SERVICE = """
import time
from signalbox.runtime.process import die_with_parent
die_with_parent()
print('up', flush=True)
time.sleep(600)
"""
STARTER = f"""
import os, subprocess, sys, time
env = {{**os.environ, {PARENT!r}: str(os.getpid())}}
child = subprocess.Popen([sys.executable, '-c', {SERVICE!r}], env=env, stdout=subprocess.PIPE, start_new_session=True)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(600)
"""


def test_a_service_ends_with_whoever_started_it() -> None:
    with subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE, text=True) as admission:
        assert admission.stdout is not None
        service = psutil.Process(int(admission.stdout.readline()))
        assert service.is_running()
        admission.send_signal(signal.SIGKILL)
        wait_until(lambda: not service.is_running() or service.status() == psutil.STATUS_ZOMBIE)


def test_a_service_whose_starter_is_gone_already_does_not_begin() -> None:
    env = {**os.environ, PARENT: "1"}
    done = subprocess.run(
        [sys.executable, "-c", SERVICE], env=env, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, b"")


@pytest.mark.parametrize(("module", "is_new"), [("sqlite3", True), ("json", False)])
def test_what_a_large_import_leaves_is_walked_over_by_no_collection(module: str, is_new: bool) -> None:
    """Where nothing was imported, nothing is set aside: a caller's own objects are still collected."""
    seen = (
        "import gc, json; from signalbox.runtime.process import collector_off\n"
        f"with collector_off():\n  import {module}\n"
        "print(gc.get_freeze_count() > 0, gc.isenabled())"
    )
    done = subprocess.run(
        [sys.executable, "-c", seen], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == [str(is_new), "True"]
