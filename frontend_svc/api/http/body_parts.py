"""How many parts a JSON body may have, by a count that costs a hundredth of reading it.

To read a body holds the event loop, in a thread as well: neither parser lets others run meanwhile. Eight megabytes of
text are read in 10 ms, eight megabytes of names or of empty lists in half a second to two.
"""

from __future__ import annotations

from signalbox.errors import InvalidRequestError

SMALL_BYTES = 1 << 16
"""A body up to this size has not more parts than are allowed."""
MAX_STRINGS = 500_000
"""Strings, names of fields included."""
MAX_NAMES = 100_000
"""Names of fields. The longest conversation (max_messages) with a call of a tool in each message has 33,000."""
MAX_GROUPS = 50_000
"""Lists and objects."""
MAX_VALUES = 1_500_000
"""All values together; a long prompt may come as that many token ids."""


def check_parts(data: bytes) -> None:
    """Raises InvalidRequestError when it has too many parts to be read in the time that others can wait."""
    if len(data) <= SMALL_BYTES or _is_within(data, data.count(b'"')):
        return
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    num_quotes = bare.count(b'"')
    _check("strings", num_quotes // 2, MAX_STRINGS)
    outside = b"".join(bare.split(b'"')[::2])  # of a body that is no JSON whatever it is: the parser says so
    _check("names", outside.count(b":"), MAX_NAMES)
    _check("lists and objects", _num_groups(outside), MAX_GROUPS)
    _check("values", outside.count(b",") + 1, MAX_VALUES)


def _is_within(data: bytes, num_quotes: int) -> bool:
    """Whether every limit holds, by a count that includes the content of strings. False: a closer look is needed."""
    is_short = num_quotes // 2 <= MAX_STRINGS and data.count(b":") <= MAX_NAMES
    return is_short and _num_groups(data) <= MAX_GROUPS and data.count(b",") < MAX_VALUES


def _num_groups(data: bytes) -> int:
    return data.count(b"[") + data.count(b"{")


def _check(what: str, count: int, most: int) -> None:
    if count > most:
        raise InvalidRequestError(f"the body has {count} {what}; at most {most} are allowed")
