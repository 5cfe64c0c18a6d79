"""The limit of a process, read from trees of cgroups as kernels make them, and of the process itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from frontend_svc.guard.memory import Cgroup, Memory, find_cgroup, find_memory, resident_bytes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="cgroups are Linux's")
MIB = 1 << 20
PHYSICAL = 1 << 40


def write(directory: Path, **files: str) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name.replace("__", ".")).write_text(text)


def test_the_tightest_of_version_2(tmp_path: Path) -> None:
    """A pod's limit counts where its container has none; the page cache that can go is not in use."""
    write(tmp_path / "pod", memory__max=f"{512 * MIB}\n", memory__current=f"{400 * MIB}\n")
    write(tmp_path / "pod", memory__stat=f"anon 7\ninactive_file {100 * MIB}\nactive_file {20 * MIB}\n")
    write(tmp_path / "pod" / "container", memory__max="max\n", memory__current="1\n")
    cgroup = find_cgroup("0::/pod/container\n", tmp_path, PHYSICAL)
    assert cgroup is not None
    assert (cgroup.limit_bytes, cgroup.used_bytes()) == (512 * MIB, 280 * MIB)


def test_the_root_where_the_path_is_the_hosts(tmp_path: Path) -> None:
    """As in a container with version 1 and no namespace of its own for cgroups."""
    write(tmp_path / "memory", memory__limit_in_bytes=str(256 * MIB), memory__usage_in_bytes=str(200 * MIB))
    write(
        tmp_path / "memory",
        memory__stat=f"inactive_file 1\ntotal_inactive_file {50 * MIB}\ntotal_active_file {8 * MIB}\n",
    )
    memberships = "12:cpu,cpuacct:/x\n4:memory:/docker/0123\n0::/\n"
    cgroup = find_cgroup(memberships, tmp_path, PHYSICAL)
    assert cgroup is not None
    assert (cgroup.limit_bytes, cgroup.used_bytes()) == (256 * MIB, 142 * MIB)


@pytest.mark.parametrize("limit", ["max", str(9223372036854771712), str(PHYSICAL)])
def test_no_limit(tmp_path: Path, limit: str) -> None:
    write(tmp_path / "own", memory__max=limit)
    assert find_cgroup("0::/own\n", tmp_path, PHYSICAL) is None


def test_a_cgroup_that_others_share_is_not_ours_to_keep_within(tmp_path: Path) -> None:
    """A whole ring in one container: its worker may fill most of it. A child, as the one that tries forms, is ours."""
    cgroup = Cgroup(tmp_path, 512 * MIB, "memory.current", ("inactive_file",))
    assert not cgroup.is_ours_alone(os.getpid())
    with subprocess.Popen(["sleep", "60"]) as child:
        for members, alone in (
            ([os.getpid(), child.pid], True),
            ([os.getpid(), os.getppid()], False),
            ([], False),
        ):
            write(tmp_path, cgroup__procs="".join(f"{pid}\n" for pid in members))
            assert cgroup.is_ours_alone(os.getpid()) is alone
        child.kill()


def test_a_setting_is_for_this_process_alone() -> None:
    memory = find_memory(300 * MIB)
    assert memory is not None
    assert memory.limit_bytes == 300 * MIB
    before = resident_bytes()
    held = bytearray(64 * MIB)
    assert Memory(MIB).used_bytes() >= before + 60 * MIB
    assert len(held) == 64 * MIB
