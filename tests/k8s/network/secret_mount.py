"""A Secret as the kubelet mounts it, and renews it when cert-manager has written another: all files at once.

The files of a mount are links into `..data`, itself a link to a directory of one version that is moved into its place.
https://pkg.go.dev/k8s.io/kubernetes/pkg/volume/util#AtomicWriter
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

DATA = "..data"


class SecretMount:
    """The directory that a container finds at the mount's path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._version = 0

    def write(self, files: Mapping[str, bytes]) -> None:
        """Puts a new version in the place of the one before, whose directory goes."""
        before = (self.folder / DATA).resolve() if self._version else None
        self._version += 1
        version = self.folder / f"..version_{self._version}"
        version.mkdir(parents=True)
        for name, content in files.items():
            (version / name).write_bytes(content)
        link = self.folder / f"{DATA}_tmp"
        link.symlink_to(version.name)
        link.rename(self.folder / DATA)
        for name in files:
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"{DATA}/{name}")
        if before is not None:
            shutil.rmtree(before)
