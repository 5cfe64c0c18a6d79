"""Names of the protobuf files of the product, with the numbers that stand for them on the wire."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto

import signalbox.v1
import signalbox.vllm


def files() -> Iterator[FileDescriptorProto]:
    """The description of each file that is compiled into the product."""
    for package in (signalbox.v1, signalbox.vllm):
        for module in iter_modules(package.__path__, f"{package.__name__}."):
            if module.name.endswith("_pb2"):
                description = FileDescriptorProto()
                import_module(module.name).DESCRIPTOR.CopyToProto(description)
                yield description


def messages() -> Iterator[str]:
    """Messages, fields, enums, values, services and methods by their full names."""
    for file in files():
        for message in file.message_type:
            yield from _message(file.package, message)
        for enum in file.enum_type:
            yield from _enum(file.package, enum)
        for service in file.service:
            yield f"service {file.package}.{service.name}"
            for method in service.method:
                yield f"method {file.package}.{service.name}.{method.name}"


def reserved() -> frozenset[str]:
    """Lines of fields and values that may be missing: both number and name are reserved."""
    return frozenset(
        line for file in files() for message in file.message_type for line in _reserved(file.package, message)
    )


def _message(scope: str, message: DescriptorProto) -> Iterator[str]:
    if message.options.map_entry:
        return
    name = f"{scope}.{message.name}"
    yield f"message {name}"
    for field in message.field:
        yield f"field {name}.{field.name} {field.number}"
    for nested in message.nested_type:
        yield from _message(name, nested)
    for enum in message.enum_type:
        yield from _enum(name, enum)


def _enum(scope: str, enum: EnumDescriptorProto) -> Iterator[str]:
    name = f"{scope}.{enum.name}"
    yield f"enum {name}"
    yield from (f"value {name}.{value.name} {value.number}" for value in enum.value)


def _reserved(scope: str, message: DescriptorProto) -> Iterator[str]:
    name = f"{scope}.{message.name}"
    numbers = [
        number
        for span in message.reserved_range
        for number in range(span.start, min(span.end, span.start + 1000))
    ]
    for field in message.reserved_name:
        yield from (f"field {name}.{field} {number}" for number in numbers)
    for nested in message.nested_type:
        yield from _reserved(name, nested)
    for enum in message.enum_type:
        yield from _reserved_values(name, enum)


def _reserved_values(scope: str, enum: EnumDescriptorProto) -> Iterator[str]:
    numbers = [number for span in enum.reserved_range for number in range(span.start, span.end + 1)]
    for value in enum.reserved_name:
        yield from (f"value {scope}.{enum.name}.{value} {number}" for number in numbers)
