"""The files by which machines describe their processors, by path below the root, laid out as real ones do."""

from __future__ import annotations

from pathlib import Path

Tree = dict[str, str]


def epyc() -> Tree:
    """Two sockets of 32 cores with two threads each; thread n + 64 is the other one of core n."""
    tree = {f"{_cpu(n)}/topology/core_cpus_list": f"{n % 64},{n % 64 + 64}\n" for n in range(128)}
    for node in range(2):
        first = 32 * node
        tree[_node(node)] = f"{first}-{first + 31},{first + 64}-{first + 95}\n"
    return tree | {"proc/self/cgroup": "0::/system.slice/worker.service\n"}


def graviton() -> Tree:
    """96 cores without threads of their own, on one node."""
    tree = {f"{_cpu(n)}/topology/core_cpus_list": f"{n}\n" for n in range(96)}
    tree |= {f"{_cpu(n)}/cpu_capacity": "1024\n" for n in range(96)}
    return tree | {_node(0): "0-95\n", "proc/self/cgroup": "0::/\n"}


def hybrid() -> Tree:
    """Eight fast cores of two threads, beside one another, and eight slow ones; an older kernel tells no capacity."""
    tree = {f"{_cpu(n)}/topology/thread_siblings_list": f"{n // 2 * 2}-{n // 2 * 2 + 1}\n" for n in range(16)}
    tree |= {f"{_cpu(n)}/topology/thread_siblings_list": f"{n}\n" for n in range(16, 24)}
    kinds = {"sys/devices/cpu_core/cpus": "0-15\n", "sys/devices/cpu_atom/cpus": "16-23\n"}
    return tree | kinds | {_node(0): "0-23\n", "proc/self/cgroup": "0::/user.slice/user-1000.slice\n"}


def big_little() -> Tree:
    """An ARM with four slow and four fast cores that tell their capacity."""
    tree = {f"{_cpu(n)}/topology/core_cpus_list": f"{n}\n" for n in range(8)}
    return tree | {f"{_cpu(n)}/cpu_capacity": f"{430 if n < 4 else 1024}\n" for n in range(8)}


def container(quota: str = "150000 100000") -> Tree:
    """Of a 64-core host's processors all are seen; cgroup v2 in a name space of its own."""
    return epyc() | {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": f"{quota}\n"}


def nested() -> Tree:
    """A group without a limit in one of 50 in one of 6.5 processors."""
    return epyc() | {
        "proc/self/cgroup": "0::/kubepods/pod7/worker\n",
        "sys/fs/cgroup/kubepods/cpu.max": "5000000 100000\n",
        "sys/fs/cgroup/kubepods/pod7/cpu.max": "650000 100000\n",
        "sys/fs/cgroup/kubepods/pod7/worker/cpu.max": "max 100000\n",
    }


def docker_v1() -> Tree:
    """The host's path is told, and only the container's own group is mounted."""
    return graviton() | {
        "proc/self/cgroup": "5:cpu,cpuacct:/docker/c0ffee\n4:memory:/docker/c0ffee\n1:name=systemd:/\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "400000\n",
        "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    }


def two_virtual() -> Tree:
    """The machine that this was written on: two cores of a virtual machine, groups of both versions, no limit."""
    tree = {f"{_cpu(n)}/topology/core_cpus_list": f"{n}\n" for n in range(2)}
    tree |= {f"{_cpu(n)}/cpu_capacity": "1024\n" for n in range(2)}
    groups = "9:name=systemd:/\n4:memory:/a/b\n3:cpuset:/\n2:cpuacct:/\n1:cpu:/\n0::/\n"
    limits = {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}
    return tree | limits | {_node(0): "0-1\n", "proc/self/cgroup": groups}


def one_core_of_two_threads() -> Tree:
    """The smallest machine that is lent in clouds."""
    return {f"{_cpu(n)}/topology/core_cpus_list": "0-1\n" for n in range(2)} | {_node(0): "0-1\n"}


def cores(count: int) -> Tree:
    """So many, with nothing special about them."""
    return {f"{_cpu(n)}/topology/core_cpus_list": f"{n}\n" for n in range(count)}


def plant(tree: Tree, root: Path) -> Path:
    """Writes it below `root`, which is returned."""
    for path, text in tree.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def _cpu(number: int) -> str:
    return f"sys/devices/system/cpu/cpu{number}"


def _node(number: int) -> str:
    return f"sys/devices/system/node/node{number}/cpulist"
