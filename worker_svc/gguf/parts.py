"""A GGUF model in several files: `name-00001-of-00003.gguf`, the first of which has all metadata."""

from __future__ import annotations

import re
from pathlib import Path

from worker_svc.gguf.errors import GgufError
from worker_svc.gguf.reader import GgufFile

NUMBERED = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")


def part_paths(first: Path) -> list[Path]:
    """The files of a model, by the name of any of them."""
    match = NUMBERED.fullmatch(first.name)
    if match is None:
        return [first]
    return [
        first.with_name(f"{match[1]}-{number:05}-of-{match[3]}.gguf")
        for number in range(1, int(match[3]) + 1)
    ]


def open_parts(path: Path) -> list[GgufFile]:
    """All files of a model, by the path of any of them; the one with the metadata is the first. Raises GgufError for a
    part that is missing, or is one of something else."""
    files = [GgufFile(each) for each in part_paths(path)]
    said = files[0].metadata.get("split.count", 1) or 1
    if said != len(files):
        raise GgufError(f"{path} is one of {said} parts, but its name tells of {len(files)}")
    for number, file in enumerate(files):
        if file.metadata.get("split.no", 0) != number:
            raise GgufError(f"{file.path} is not part {number + 1} of {len(files)}")
    total, found = files[0].metadata.get("split.tensors.count"), sum(len(file.tensors) for file in files)
    if total is not None and len(files) > 1 and total != found:
        raise GgufError(f"{path} and its other parts have {found} of {total} tensors")
    return files
