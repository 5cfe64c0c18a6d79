"""How alike two vectors of length 1 are."""

from __future__ import annotations

from array import array


def dot(one: bytes, other: bytes) -> float:
    """The product of two vectors of 32-bit floats: of length 1, the cosine of their angle."""
    return sum(map(float.__mul__, array("f", one), array("f", other)))
