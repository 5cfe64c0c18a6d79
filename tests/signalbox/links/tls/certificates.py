"""Certificates for tests, by the real authority of the command line."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from signalbox.links.tls.authority import Issued, make_authority, make_leaf, write_issued
from signalbox.links.tls.identity import Identity
from signalbox.links.tls.roles import Role

NOW = datetime.now(UTC)


@dataclass(frozen=True)
class Certificates:
    """A folder with the files of one authority."""

    folder: Path
    authority: Issued

    @classmethod
    def make(cls, folder: Path) -> Certificates:
        folder.mkdir(parents=True, exist_ok=True)
        authority = make_authority(NOW)
        write_issued(folder, "ca", authority)
        return cls(folder, authority)

    def files(
        self, role: Role, name: str = "", *, days: float = 1.0, ago: float = 0.0, instance: str = ""
    ) -> tuple[Path, Path, Path]:
        """Certificate, key, authority. ago: days since it was made."""
        name = name or role.value
        if not (self.folder / f"{name}.crt").exists():
            made = NOW - timedelta(days=ago)
            leaf = make_leaf(
                self.authority, role, made, days=days, hosts=["127.0.0.1", "localhost"], instance=instance
            )
            write_issued(self.folder, name, leaf)
        return self.folder / f"{name}.crt", self.folder / f"{name}.key", self.folder / "ca.crt"

    def identity(self, role: Role, name: str = "", **how: object) -> Identity:
        return Identity(*self.files(role, name, **how))  # type: ignore[arg-type]
