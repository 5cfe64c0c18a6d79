"""Runs the stages of the Dockerfile in directories, where there is no engine: `make images`.

Each stage is a copy of its base, in which its commands run by `chroot`. In the place of the base image stands Debian
bookworm with its own Python 3.11, made by debootstrap. Needs root and some gigabytes; the network, and pip's own
variables, are this machine's. Layers, labels and the base image itself are not rehearsed. What comes of it is one JSON
line for each image: its size without the base, and what was tried in it.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tools.dockerfile import PATH, Stage, read_stages

IMAGES = ("scheduler", "frontend", "worker")
PACKAGES = "python3,python3-pip,python3-venv,ca-certificates"
BUILD = ("setuptools==79.0.1", "wheel==0.46.3")
"""What the base image has besides Python and pip, by its own Dockerfile."""
MIRROR = "http://deb.debian.org/debian"
NO_PIP = "import importlib.util as u; assert u.find_spec('pip') is None, 'pip is there'"
SHARED = ("/etc/resolv.conf", "/etc/ssl/certs/ca-certificates.crt")
"""What commands need of this machine to reach its network."""


class ImageError(Exception):
    """A stage cannot be run; the message is a sentence."""


@dataclass
class Room:
    """What a stage has come to: a root file system, or only files."""

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    directory: str = "/"
    user: str = "0:0"
    command: str = ""


class Builder:
    """Runs stages, each once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._arguments, self._stages = read_stages()
        if "PIP_FIND_LINKS" in os.environ:
            # torch is there; an index that cannot be reached from here would be asked for every package.
            self._arguments["TORCH_INDEX"] = "https://pypi.org/simple"
        self._rooms: dict[str, Room] = {}

    def base(self) -> Room:
        """Debian with Python, in the base image's place."""
        if "" not in self._rooms:
            root = self._folder / "base"
            if not root.exists():
                run(
                    [
                        "debootstrap",
                        "--variant=minbase",
                        f"--include={PACKAGES}",
                        "bookworm",
                        str(root),
                        MIRROR,
                    ]
                )
                (root / "usr/local/bin/python").symlink_to("/usr/bin/python3")
            path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
            self._rooms[""] = Room(root, {"PATH": path, "LANG": "C.UTF-8"})
            enter(self._rooms[""], ["pip", "install", "--break-system-packages", "--quiet", *BUILD])
        return self._rooms[""]

    def stage(self, name: str) -> Room:
        """The stage of that name, run if it has not been."""
        if name not in self._rooms:
            stage = self._stages[name]
            started = time.monotonic()
            self._rooms[name] = room = self._begin(name, stage)
            for word, rest in stage.instructions:
                self._apply(room, word, rest)
            print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)
        return self._rooms[name]

    def _begin(self, name: str, stage: Stage) -> Room:
        root = self._folder / name
        shutil.rmtree(root, ignore_errors=True)
        if stage.base == "scratch":
            root.mkdir()
            return Room(root)
        base = self.stage(stage.base) if stage.base in self._stages else self.base()
        run(["cp", "-a", "--reflink=auto", str(base.root), str(root)])
        return Room(root, dict(base.environment), base.directory, base.user, base.command)

    def _apply(self, room: Room, word: str, rest: str) -> None:
        if word == "ENV":
            for part in shlex.split(rest):
                key, _, value = part.partition("=")
                room.environment[key] = value.replace("$PATH", room.environment["PATH"])
        elif word == "WORKDIR":
            room.directory = rest
            inside(room, rest).mkdir(parents=True, exist_ok=True)
        elif word == "USER":
            room.user = rest.replace("root", "0:0")
        elif word == "ENTRYPOINT":
            (room.command,) = json.loads(rest)
        elif word == "COPY":
            self._copy(room, rest.split())
        elif word == "RUN":
            enter(room, ["/bin/sh", "-c", self._fill(rest)])
        elif word not in ("EXPOSE", "ARG"):
            raise ImageError(f"{word} is not an instruction that can be run")

    def _fill(self, text: str) -> str:
        for name, value in self._arguments.items():
            text = text.replace(f"${{{name}}}", value)
        return text

    def _copy(self, room: Room, parts: list[str]) -> None:
        source_root = PATH.parent
        if parts[0].startswith("--from="):
            source_root = self.stage(parts.pop(0).removeprefix("--from=")).root
        *sources, target = parts
        place = inside(room, target if target.startswith("/") else f"{room.directory}/{target}")
        for source in sources:
            path = source_root / source.lstrip("/")
            into = place / path.name if target.endswith("/") and not source.endswith("/") else place
            if path.is_dir():
                ignore = shutil.ignore_patterns("__pycache__") if source_root == PATH.parent else None
                shutil.copytree(path, into, symlinks=True, dirs_exist_ok=True, ignore=ignore)
            else:
                into.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, into)


def inside(room: Room, path: str) -> Path:
    """A path of the stage, on this machine."""
    return room.root / path.lstrip("/")


def enter(room: Room, command: list[str], *, read_only: bool = False) -> str:
    """Runs a command in a stage; returns what it printed. Raises ImageError when it fails."""
    passed = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("PIP_") or name.endswith("_proxy")
    }
    # As an engine does for a container: a directory that can be written, whatever else cannot.
    variables = [f"{name}={value}" for name, value in (passed | room.environment).items()]
    script = ["set -e", f"mount --bind {room.root} {room.root}"]
    with ExitStack() as stack:
        shared = [
            *SHARED,
            *(path for path in passed.get("PIP_FIND_LINKS", "").split() if Path(path).is_dir()),
        ]
        for path in shared:
            place = inside(room, path)
            if Path(path).is_dir():
                place.mkdir(parents=True, exist_ok=True)
                stack.callback(place.rmdir)
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.touch()
            script.append(f"mount --bind {path} {place}")
        script.append(f"mount -t proc proc {room.root}/proc")
        script.append(f"mount --bind /dev {room.root}/dev")
        if read_only:
            script.append(f"mount -o remount,bind,ro {room.root}")
            script.append(f"mount -t tmpfs tmpfs {room.root}/tmp")
        script.append(f"cd {inside(room, room.directory)}")
        target = shlex.join(["env", "-i", *variables, *command])
        line = f"cd {shlex.quote(room.directory)} && exec {target}"
        script.append(f"exec chroot --userspec={room.user} {room.root} /bin/sh -c {shlex.quote(line)}")
        return run(["unshare", "--mount", "/bin/sh", "-c", "\n".join(script)])


def run(command: list[str]) -> str:
    """What a command printed. Raises ImageError with the end of what it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip()[-1500:]
        raise ImageError(f"{shlex.join(command)[-300:]} ends with {done.returncode}: {said}")
    return done.stdout


def size_of(root: Path) -> int:
    """Bytes of all files, as they lie on the disk."""
    return int(run(["du", "-sk", str(root)]).split()[0]) * 1024


def try_image(name: str, room: Room, base: Room) -> dict[str, object]:
    """What an image is when it is started as the manifests do: another user, nothing to write to but /tmp."""
    version = enter(room, [room.command, "--help"], read_only=True).splitlines()[0]
    enter(room, ["/opt/signalbox/bin/python", "-c", NO_PIP], read_only=True)
    facts: dict[str, object] = {"image": name, "user": room.user, "says": version}
    facts["mib_above_base"] = (size_of(room.root) - size_of(base.root)) >> 20
    if name.startswith("worker"):
        found = (
            "from worker_svc.runner.cpu.shipped import manifest as m; print(len(list(m.FOLDER.glob('*.so'))))"
        )
        facts["kernel_libraries"] = int(
            enter(room, ["/opt/signalbox/bin/python", "-c", found], read_only=True)
        )
    return facts


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.images", description="Run the Dockerfile's stages."
    )
    parser.add_argument("--folder", type=Path, help="where to; what is there of the base is used (a new one)")
    parser.add_argument("images", nargs="*", default=list(IMAGES), help="(%(default)s)")
    arguments = parser.parse_args()
    missing = [name for name in ("debootstrap", "unshare", "chroot") if shutil.which(name) is None]
    if os.geteuid() or missing:
        print(f"images: needs root{''.join(f', {name}' for name in missing)}", file=sys.stderr)
        return 1
    with ExitStack() as stack:
        folder = arguments.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="images-")))
        builder = Builder(folder)
        try:
            for name in arguments.images:
                print(json.dumps(try_image(name, builder.stage(name), builder.base())), flush=True)
        except ImageError as error:
            print(f"images: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
