"""One JSON object per line, whatever is logged; read as text it is the line that would have been written."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from signalbox.runtime.logs import as_text, is_json

PROGRAM = """
import logging, sys
from signalbox.runtime import logs
logs.set_up('worker', 'info', sys.argv[1], {'worker_id': 'worker-3', 'name': ''})
log = logging.getLogger('some.module')
log.debug('not told')
log.info('a %s of "two"\\nlines', 'word')
log.warning('request ended', extra={'request_id': 'r"1', 'key_id': '', 'duration_s': 0.5})
try:
    1 / 0
except ZeroDivisionError:
    log.exception('it failed')
"""


def lines_of(form: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", PROGRAM, form], capture_output=True, text=True, check=True)
    assert not done.stdout
    return done.stderr.splitlines()


def test_each_record_is_an_object_on_a_line() -> None:
    words, ended, failed = (json.loads(line) for line in lines_of("json"))
    assert words.pop("time").endswith("+00:00")
    assert words == {
        "level": "INFO",
        "logger": "some.module",
        "message": 'a word of "two"\nlines',
        "service": "worker",
        "worker_id": "worker-3",
    }
    assert (ended["level"], ended["request_id"], ended["duration_s"]) == ("WARNING", 'r"1', 0.5)
    assert failed["exc_info"].endswith("ZeroDivisionError: division by zero")


def test_text_tells_fields_that_have_a_value() -> None:
    found = lines_of("text")
    assert found[0].endswith('worker INFO a word of "two"')
    assert found[2].endswith('worker WARNING request ended request_id=r"1 duration_s=0.5')
    assert found[-1] == "ZeroDivisionError: division by zero"


def test_json_read_as_text_is_the_text() -> None:
    read = [part for line in lines_of("json") for part in as_text(line).splitlines()]
    read = [line.replace(" worker_id=worker-3", "") for line in read]
    told = lines_of("text")
    assert [line.partition(" worker ")[2] for line in read] == [
        line.partition(" worker ")[2] for line in told
    ]


@pytest.mark.parametrize("line", ["", "2026-01-01 a worker INFO words", '{"a": 1}', "{", "[1]", "{1}"])
def test_other_lines_stay_as_they_are(line: str) -> None:
    assert not is_json(line)
    assert as_text(line) == line
