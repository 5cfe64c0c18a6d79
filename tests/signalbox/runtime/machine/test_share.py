"""What of a machine a model gets, on machines that are described as real ones are."""

from __future__ import annotations

from pathlib import Path

import pytest

from signalbox.runtime.machine.cpus import Cpu, Machine
from signalbox.runtime.machine.share import LONG_SPINS, SHORT_SPINS, share_of, spins
from signalbox.runtime.machine.system import parse_list, read_machine, this_machine
from tests.signalbox.runtime.machine import trees
from tests.signalbox.runtime.machine.trees import Tree, plant


def described(tree: Tree, root: Path, count: int) -> Machine:
    return read_machine(plant(tree, root), range(count))


@pytest.mark.parametrize(
    ("tree", "count", "threads", "reason"),
    [
        (trees.epyc(), 128, 64, "the 64 cores on 2 nodes of memory of 128 processors"),
        (trees.graviton(), 96, 95, "the 96 cores of 96 processors but one, which is for the services"),
        (trees.hybrid(), 24, 8, "the 8 fast cores of 24 processors"),
        (trees.big_little(), 8, 4, "the 4 fast cores of 8 processors"),
        (trees.container(), 128, 1, "a quota of 1.5 processors"),
        (trees.container("30000 100000"), 128, 1, "a quota of 0.3 processors"),
        (trees.container("max 100000"), 128, 64, "the 64 cores on 2 nodes of memory of 128 processors"),
        (trees.nested(), 128, 5, "a quota of 6.5 processors"),
        (trees.docker_v1(), 96, 3, "a quota of 4 processors"),
        (trees.two_virtual(), 2, 2, "all processors"),
        (trees.one_core_of_two_threads(), 2, 2, "all processors"),
        ({}, 4, 3, "the 4 cores of 4 processors but one, which is for the services"),
        ({}, 1, 1, "all processors"),
    ],
)
def test_threads_follow_from_the_machine(
    tree: Tree, count: int, threads: int, reason: str, tmp_path: Path
) -> None:
    share = share_of(described(tree, tmp_path, count))
    assert (share.threads, share.reason) == (threads, reason)


def test_a_cpuset_leaves_the_cores_that_are_in_it(tmp_path: Path) -> None:
    machine = read_machine(plant(trees.epyc(), tmp_path), parse_list("0-3,64-67"))
    assert [cpu.number for cpu in machine.cores] == [0, 1, 2, 3]
    assert share_of(machine).threads == 4


def test_of_a_core_whose_first_thread_is_not_ours_we_use_the_other(tmp_path: Path) -> None:
    machine = read_machine(plant(trees.epyc(), tmp_path), [64, 65, 66])
    assert [cpu.number for cpu in machine.cores] == [64, 65, 66]


@pytest.mark.parametrize("count", range(1, 257))
def test_every_number_of_cores_is_used_and_shared_out(count: int) -> None:
    machine = Machine(tuple(Cpu(number, number) for number in range(count)))
    assert share_of(machine).threads == (count if count <= 2 else count - 1)
    for num_workers in (1, 2, 3, 7):
        threads = share_of(machine, num_workers).threads
        assert threads >= 1
        assert threads * num_workers <= max(count, num_workers)


@pytest.mark.parametrize(
    ("tree", "count", "threads", "expected"),
    [
        (trees.epyc(), 128, None, LONG_SPINS),
        (trees.two_virtual(), 2, None, LONG_SPINS),
        (trees.two_virtual(), 2, 3, SHORT_SPINS),
        (trees.container(), 128, None, SHORT_SPINS),
        (trees.container("25600000 100000"), 128, None, LONG_SPINS),
    ],
)
def test_threads_that_share_processors_do_not_spin_for_long(
    tree: Tree, count: int, threads: int | None, expected: int, tmp_path: Path
) -> None:
    assert spins(described(tree, tmp_path, count), threads) == expected


def test_this_machine_can_be_read() -> None:
    machine = this_machine()
    assert 1 <= share_of(machine).threads <= len(machine.cpus)
    assert set(machine.cores) <= set(machine.cpus)
