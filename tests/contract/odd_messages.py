"""Messages of a peer that means harm: any message of the wire, made by its descriptor, and valid ones damaged."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import Message

MOST_ITEMS = 4
MOST_DEPTH = 5
_INTEGERS = {
    Field.TYPE_UINT32: (0, 1, 2, 3, 7, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1),
    Field.TYPE_UINT64: (0, 1, 2, 7, 2**31, 2**32, 2**53, 2**62 - 1, 2**62, 2**63, 2**64 - 1),
    Field.TYPE_INT32: (0, 1, -1, 2**31 - 1, -(2**31)),
    Field.TYPE_SINT32: (0, 1, -1, 2**31 - 1, -(2**31)),
    Field.TYPE_INT64: (0, 1, -1, 2**63 - 1, -(2**63)),
    Field.TYPE_SINT64: (0, 1, -1, 2**53, 2**63 - 1, -(2**63)),
}
_FLOATS = (0.0, 1.0, -1.0, 1e300, float("nan"), float("inf"), -float("inf"))
_TEXTS = (
    "",
    "x",
    "\x00",
    "a" * 300,
    "é\n\r\t",
    "127.0.0.1:1",
    "host:99999",
    "unix:///x",
    "../..",
    "%s{0}",
    "w" * 70_000,
)
_BYTES = (
    b"",
    b"\x00",
    b"\xff" * 3,
    b"\xff" * 4,
    bytes(16),
    b"\x01\x00",
    b"\xff\xff",
    bytes(17),
    b"\xff" * 4096,
)


class OddMessages:
    """A source of them, of one seed."""

    def __init__(self, seed: object, known: Mapping[str, tuple[Any, ...]] | None = None) -> None:
        """known: values by name of field that mean something to whoever hears them: ids, names, slots."""
        self.rng = random.Random(str(seed))
        self._known = known or {}

    def make(self, message: Message, depth: int = 0) -> Message:
        """Fills some fields of `message`, and returns it."""
        for field in message.DESCRIPTOR.fields:
            if self.rng.random() < 0.5:
                self._set(message, field, depth)
        return message

    def damage(self, message: Message) -> Message:
        """Changes one to three fields of `message`, at any depth, and returns it."""
        for _ in range(self.rng.choice((1, 1, 2, 3))):
            owner = self._somewhere_in(message)
            if owner.DESCRIPTOR.fields:
                self._set(owner, self.rng.choice(owner.DESCRIPTOR.fields), MOST_DEPTH - 2)
        return message

    def bytes_of(self, message: Message) -> bytes:
        """The message as it is sent; now and then cut, or with a byte that is another."""
        data = bytearray(message.SerializeToString())
        if data and self.rng.random() < 0.1:
            data[self.rng.randrange(len(data))] = self.rng.randrange(256)
        if data and self.rng.random() < 0.05:
            del data[self.rng.randrange(len(data)) :]
        return bytes(data)

    def _somewhere_in(self, message: Message) -> Message:
        below = [
            value
            for field, value in message.ListFields()
            if field.type == Field.TYPE_MESSAGE and not _is_map(field)
        ]
        inner = [each for value in below for each in ([value] if isinstance(value, Message) else value)]
        if not inner or self.rng.random() < 0.3:
            return message
        return self._somewhere_in(self.rng.choice(inner))

    def _set(self, message: Message, field: Field, depth: int) -> None:
        message.ClearField(field.name)
        if _is_map(field):
            self._fill(getattr(message, field.name), *field.message_type.fields)
        elif field.is_repeated:
            items = getattr(message, field.name)
            for _ in range(self.rng.choice((0, 1, 1, 2, MOST_ITEMS))):
                if field.type == Field.TYPE_MESSAGE:
                    if depth < MOST_DEPTH:
                        self.make(items.add(), depth + 1)
                else:
                    items.append(self._value(field))
        elif field.type == Field.TYPE_MESSAGE:
            inner = getattr(message, field.name)
            inner.SetInParent()
            if depth < MOST_DEPTH:
                self.make(inner, depth + 1)
        else:
            setattr(message, field.name, self._value(field))

    def _fill(self, entries: Any, key: Field, value: Field) -> None:
        """A map of plain values."""
        for _ in range(self.rng.choice((0, 1, 2, MOST_ITEMS))):
            entries[self._value(key)] = self._value(value)

    def _value(self, field: Field) -> Any:
        if field.name in self._known and self.rng.random() < 0.6:
            return self.rng.choice(self._known[field.name])
        if field.type in _INTEGERS:
            return self.rng.choice(_INTEGERS[field.type])
        if field.type == Field.TYPE_BOOL:
            return self.rng.random() < 0.5
        if field.type == Field.TYPE_STRING:
            return self.rng.choice(_TEXTS)
        if field.type == Field.TYPE_BYTES:
            return self.rng.choice(_BYTES)
        if field.type == Field.TYPE_ENUM:
            return self.rng.choice((*(value.number for value in field.enum_type.values), 99))
        if field.type in (Field.TYPE_DOUBLE, Field.TYPE_FLOAT):
            return self.rng.choice(_FLOATS)
        raise AssertionError(f"no odd value for {field.full_name}")


def _is_map(field: Field) -> bool:
    return field.type == Field.TYPE_MESSAGE and bool(field.message_type.GetOptions().map_entry)
