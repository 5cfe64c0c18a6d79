"""Stand-ins for the services: real processes, a few lines each. Every one writes `pid N` to its log first, and ends
with whoever started it, as services do."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from signalbox.cli.ring.supervisor import Service
from signalbox.runtime.logs import LogFormat

_START = """
import os, signal, subprocess, sys, time
from signalbox.runtime.process import die_with_parent
die_with_parent()
print('pid', os.getpid(), flush=True)
"""
_WAIT = "time.sleep(600)\n"
_NOTE_STOP = """
def stop(*_):
    with open(sys.argv[1], 'a') as notes:
        print(sys.argv[2], file=notes)
    raise SystemExit
signal.signal(signal.SIGTERM, stop)
"""
_STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True)\n"
_WITH_HELPER = "helper = subprocess.Popen(['sleep', '600']); print('pid', helper.pid, flush=True)\n"
_LOGGING = """
import logging
from signalbox.runtime import logs
logs.set_up('worker', 'INFO', sys.argv[1])
logging.info('all is well')
logging.warning('less well')
logging.error('not well\\nits second line')
"""
_SERVING = """
import asyncio
from signalbox.links import rpc
async def serve():
    server = rpc.Server([])
    await server.start('127.0.0.1:' + sys.argv[3])
    await server.set_serving(True)
    await asyncio.Event().wait()
asyncio.run(serve())
"""
_REFUSE = """
print(sys.argv[1], file=sys.stderr)
print('Exception ignored in: what a library does at exit', file=sys.stderr)
sys.exit(int(sys.argv[2]))
"""
_HTTP = """
from http.server import BaseHTTPRequestHandler, HTTPServer
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
HTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()
"""


def _service(name: str, code: str, *arguments: object) -> Service:
    return Service(name, (sys.executable, "-c", _START + code, *map(str, arguments)))


def patient(name: str) -> Service:
    """Runs until it is ended."""
    return _service(name, _WAIT)


def noting(name: str, notes: Path) -> Service:
    """Appends its name to `notes` when it is asked to stop."""
    return _service(name, _NOTE_STOP + _WAIT, notes, name)


def serving(name: str, notes: Path, port: int) -> Service:
    """The same, and its gRPC health is SERVING."""
    return _service(name, _NOTE_STOP + _SERVING, notes, name, port)


def stubborn(name: str) -> Service:
    """Ignores SIGTERM."""
    return _service(name, _STUBBORN + _WAIT)


def with_helper(name: str) -> Service:
    """Has a child of its own."""
    return _service(name, _WITH_HELPER + _WAIT)


def refusing(name: str, sentence: str, status: int = 1) -> Service:
    """Says why it cannot start, as signalbox.runtime.process.run does."""
    return _service(name, _REFUSE, sentence, status)


def crashing(name: str) -> Service:
    """Ends with a traceback."""
    return _service(name, "raise ValueError('a bug')")


def killed(name: str) -> Service:
    """Ends as by the kernel's out-of-memory killer."""
    return _service(name, "os.kill(os.getpid(), signal.SIGKILL)")


def logging(name: str, form: LogFormat) -> Service:
    """Logs an INFO, a WARNING and an ERROR of two lines."""
    return _service(name, _LOGGING + _WAIT, form)


def http(name: str, port: int) -> Service:
    """Answers every GET with 200."""
    return _service(name, _HTTP, port)


def pids(log_dir: Path) -> list[int]:
    """Those that the services have noted."""
    return [
        int(pid) for log in log_dir.glob("*.log") for pid in re.findall(r"^pid (\d+)$", log.read_text(), re.M)
    ]


def alive(log_dir: Path) -> list[int]:
    """Noted processes that still run."""
    return [
        pid for pid in pids(log_dir) if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"
    ]


def wait_until(condition: Callable[[], object], timeout_s: float = 20) -> None:
    """Polls; fails the test when the condition does not come about."""
    give_up = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < give_up, "it did not come about"
        time.sleep(0.02)
