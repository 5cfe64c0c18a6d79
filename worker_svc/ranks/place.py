"""Which rank a process is, where others start it: torchrun's and LeaderWorkerSet's environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from signalbox.errors import StartupError
from signalbox.links.addresses import read_address

PORT = 7320
"""Where ranks of other hosts reach rank 0, unless the environment says another port."""
TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
LEADER_WORKER_SET = ("LWS_WORKER_INDEX", "LWS_GROUP_SIZE", "LWS_LEADER_ADDRESS")


@dataclass(frozen=True)
class RankPlace:
    """A rank among others, each started by itself."""

    rank: int
    num_ranks: int
    leader: str
    """host:port where rank 0 is reached."""

    num_here: int = 1
    """Ranks of this host, which share its memory."""
    number_here: int = 0
    """Its number among these."""

    @property
    def port(self) -> int:
        """Where rank 0 listens for the others."""
        return int(self.leader.rpartition(":")[2])


def place_of(environment: Mapping[str, str], num_ranks: int) -> RankPlace | None:
    """The place that the environment names for a model that is divided among `num_ranks`; None: it names none, and
    rank 0 starts the others. StartupError for a place that cannot be."""
    if num_ranks == 1:
        return None
    if environment.get("WORLD_SIZE") == "1":  # whatever started this one process
        return None
    if any(name in environment for name in TORCHRUN[:2]):
        rank, size, host, port = _read(environment, TORCHRUN)
        if environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            port = str(PORT)  # that of MASTER_PORT is torchrun's own
    elif LEADER_WORKER_SET[0] in environment:
        rank, size, host = _read(environment, LEADER_WORKER_SET)
        port = str(PORT)
    else:
        return None
    try:
        num_here = int(environment.get("LOCAL_WORLD_SIZE", "1"))
        number_here = int(environment.get("LOCAL_RANK", "0"))
        place = RankPlace(int(rank), int(size), read_address(f"{host}:{port}"), num_here, number_here)
    except ValueError as error:
        raise StartupError(f"the environment names no rank: {error}") from None
    if not 0 <= place.rank < place.num_ranks:
        raise StartupError(f"the environment names rank {place.rank} of {place.num_ranks}")
    if place.num_ranks != num_ranks:
        raise StartupError(
            f"the environment names {place.num_ranks} ranks, and --tensor-parallel times --pipeline-parallel is"
            f" {num_ranks}: say the same number"
        )
    return place


def _read(environment: Mapping[str, str], names: tuple[str, ...]) -> list[str]:
    missing = [name for name in names if not environment.get(name)]
    if missing:
        raise StartupError(f"the environment names a rank ({names[0]}), but lacks {missing[0]}")
    return [environment[name] for name in names]
