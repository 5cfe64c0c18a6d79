"""A name stays with the certificate that used it first."""

from __future__ import annotations

import pytest

from signalbox.errors import PermissionDeniedError
from signalbox.links.tls import owners
from signalbox.links.tls.owners import Owners

ONE, OTHER = ("spiffe://signalbox/frontend/a",), ("spiffe://signalbox/frontend/b",)


def test_nobody_else_gets_a_name() -> None:
    """TL5."""
    names = Owners()
    names.check("u", ONE)
    names.check("u", ONE)
    with pytest.raises(PermissionDeniedError, match="u belongs to another certificate"):
        names.check("u", OTHER)
    names.check("v", OTHER)


def test_in_plaintext_nobody_owns_anything() -> None:
    names = Owners()
    names.check("u", ())
    names.check("u", ONE)
    with pytest.raises(PermissionDeniedError):
        names.check("u", OTHER)
    names.check("u", ())


def test_names_made_up_push_out_only_their_maker_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "MOST_NAMES", 3)
    names = Owners()
    names.check("mine", ONE)
    for number in range(100):
        names.check(f"made up {number}", OTHER)
    with pytest.raises(PermissionDeniedError):
        names.check("mine", OTHER)
    names.check("made up 0", ONE)
    with pytest.raises(PermissionDeniedError):
        names.check("made up 99", ONE)
