"""A service that `up` has started ends with it, whatever ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil

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
