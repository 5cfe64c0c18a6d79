"""Why a CUDA graph could not be captured or replayed, as one of few reasons."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import torch


class Reason(StrEnum):
    """What a graph lacked."""

    MEMORY = "memory"
    """Memory of the device."""
    RESOURCES = "resources"
    """Shared memory or registers, of which a kernel needs more than there are."""
    HOST = "host"
    """Independence: the step waits for the device, or copies from the host."""
    DEVICE = "device"
    """A device: nothing runs in this process's context any more."""
    OTHER = "other"
    """Something that none of the others says."""


SCARCE = frozenset({Reason.MEMORY, Reason.RESOURCES})
"""A smaller step may have what this one lacks."""
CODES = {
    Reason.MEMORY: frozenset({2}),
    Reason.RESOURCES: frozenset({701, 720}),
    Reason.HOST: frozenset({900, 902, 903, 904, 905, 906, 907, 908}),
    Reason.DEVICE: frozenset({46, 100, 101, 214, 220, 700, 702, 709, 710, *range(714, 720), 999}),
}
"""Numbers of cudaError. 901 is left out: it says that something failed before, not what."""
WORDS = {
    Reason.MEMORY: ("out of memory", "alloc_failed"),
    Reason.RESOURCES: ("outofresources", "out of resource", "too many resources requested", "ptxaserror"),
    Reason.HOST: (
        "during cuda graph capture",
        "when stream is capturing",
        "would make the legacy stream depend on a capturing",
    ),
    Reason.DEVICE: (
        "illegal memory access",
        "illegal instruction",
        "misaligned address",
        "unspecified launch failure",
        "device-side assert",
        "uncorrectable ecc",
        "hardware stack error",
        "context is destroyed",
    ),
}
"""What errors without a number say: of Triton, cuBLAS, the driver, and torch where it only has text."""


def reason_of(error: BaseException) -> Reason:
    """The reason that the first error of a chain gives: what ends a capture often hides what broke it."""
    reasons = (_reason_of_one(link) for link in _from_first(error))
    return next((reason for reason in reasons if reason != Reason.OTHER), Reason.OTHER)


def text_of(error: BaseException) -> str:
    """The type and the words of the error that gives the reason."""
    links = list(_from_first(error))
    known = (link for link in links if _reason_of_one(link) != Reason.OTHER)
    link = next(known, links[-1])
    return f"{type(link).__name__}: {link}"


def _reason_of_one(error: BaseException) -> Reason:
    if isinstance(error, torch.OutOfMemoryError):
        return Reason.MEMORY
    code = getattr(error, "error_code", None)  # of torch.AcceleratorError
    text = f"{type(error).__name__} {error}".lower()
    for reason, words in WORDS.items():
        if code in CODES[reason] or any(word in text for word in words):
            return reason
    return Reason.OTHER


def _from_first(error: BaseException) -> Iterator[BaseException]:
    """The errors of a chain, that which was raised first ahead."""
    links: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in links:
        links.append(link)
        link = link.__cause__ or link.__context__
    return reversed(links)
