"""Which scheduler leads: asked of a list of addresses by whoever is about to open a link (docs/liveness.md, A4)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc

from signalbox.errors import UnavailableError
from signalbox.links import rpc
from signalbox.links.addresses import read_addresses
from signalbox.links.tls.identity import ours
from signalbox.links.tls.roles import Role
from signalbox.links.tls.trouble import trouble_of
from signalbox.v1 import scheduler_pb2, scheduler_pb2_grpc

ANSWER_S = 0.5
"""Longest wait for one answer: a stopped process accepts connections and says nothing."""
FIRST_RETRY_S = 0.05
LONGEST_RETRY_S = 0.3
"""Most seconds between two questions to one address; more and more, so that many clients leave a standby its time."""
FIND_S = 1.0


@dataclass(frozen=True)
class Leader:
    """A scheduler that leads, or led a moment ago."""

    address: str
    channel: grpc.aio.Channel
    """The channel to that address; it belongs to the search."""
    term: int
    instance: str
    """UUID of the leader's process."""


class LeaderSearch:
    """Finds the leader among `host:port,host:port`; one address alone is such a list.

    It keeps a channel per address for as long as that address answers: the one of a found leader is good for links
    until the next search. An address that does not answer gets a new channel with each question, as an old one would
    wait before it connects again. One search at a time.
    """

    def __init__(self, addresses: str, role: Role = Role.SCHEDULER) -> None:
        """role: what listens there by its certificate, a relay perhaps. Raises ValueError for what is no list of
        addresses."""
        self._role = role
        self.addresses = read_addresses(addresses)
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._said: dict[str, str] = {}
        """What each address answered last, in words."""

    async def find(
        self, timeout_s: float = FIND_S, is_deposed: Callable[[Leader], bool] = lambda leader: False
    ) -> Leader:
        """Asks all addresses at once, again and again, until one leads. One that `is_deposed` is taken only if no other
        leads in `timeout_s`. Raises UnavailableError after that, with one sentence on what each of them said."""
        deposed: list[Leader] = []
        asking = [
            asyncio.create_task(self._ask_until_it_leads(address, is_deposed, deposed))
            for address in self.addresses
        ]
        try:
            done, _ = await asyncio.wait(asking, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        if not done and deposed:
            return max(deposed, key=lambda leader: leader.term)
        if not done:
            raise UnavailableError(self._why_none())
        # One that was deposed and does not know it yet may answer beside its successor.
        return max((task.result() for task in done), key=lambda leader: leader.term)

    async def close(self) -> None:
        """Closes all channels, and with them the links on them."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close(None)

    async def _ask_until_it_leads(
        self, address: str, is_deposed: Callable[[Leader], bool], deposed: list[Leader]
    ) -> Leader:
        """Keeps in `deposed` what leads and is not returned."""
        retry_s = FIRST_RETRY_S
        answered: Leader | None = None
        while True:
            leader = await self._ask_or_follow(address)
            if answered is not None:
                deposed.remove(answered)
            answered = leader
            if leader is not None:
                if not is_deposed(leader):
                    return leader
                deposed.append(leader)
            await asyncio.sleep(retry_s * random.uniform(0.5, 1.0))
            retry_s = min(1.5 * retry_s, LONGEST_RETRY_S)

    async def _ask_or_follow(self, address: str) -> Leader | None:
        """The leader at `address`, or where it says that the leader is."""
        answer = await self._ask(address)
        if answer is None:
            return None
        if answer.is_leader:
            return self._leader(address, answer)
        named = answer.leader_address
        self._said[address] = f"{address} is a standby" + (f" of {named}" if named else "")
        if not named or named in self.addresses:  # all of the list are asked anyway
            return None
        answer = await self._ask(named)
        if answer is not None and answer.is_leader:
            return self._leader(named, answer)
        await self._drop(named)
        return None

    def _leader(self, address: str, answer: scheduler_pb2.FindLeaderResponse) -> Leader:
        return Leader(address, self._channels[address], answer.scheduler_epoch, answer.scheduler_instance)

    async def _ask(self, address: str) -> scheduler_pb2.FindLeaderResponse | None:
        """None when there was no answer in time."""
        if address not in self._channels:
            self._channels[address] = rpc.channel(address, self._role)
        stub = scheduler_pb2_grpc.SchedulerServiceStub(self._channels[address])
        try:
            answer = await stub.FindLeader(scheduler_pb2.FindLeaderRequest(), timeout=ANSWER_S)
        except grpc.aio.AioRpcError as error:
            self._said[address] = _say(address, error)
            await self._drop(address)
            return None
        assert isinstance(answer, scheduler_pb2.FindLeaderResponse)
        return answer

    async def _drop(self, address: str) -> None:
        channel = self._channels.pop(address, None)
        if channel is not None:
            await channel.close(None)

    @property
    def is_nobody_there(self) -> bool:
        """No address answered the last question to it."""
        return all(self._said.get(address) == _nothing_at(address) for address in self.addresses)

    def _why_none(self) -> str:
        if self.is_nobody_there:
            return _nothing_at(" or ".join(self.addresses))
        said = (self._said.get(address, f"{address} said nothing") for address in self.addresses)
        return f"no scheduler leads: {'; '.join(said)}"


@asynccontextmanager
async def leader_search(addresses: str) -> AsyncIterator[LeaderSearch]:
    """A search whose channels are closed behind the block."""
    search = LeaderSearch(addresses)
    try:
        yield search
    finally:
        await search.close()


def _nothing_at(address: str) -> str:
    return f"nothing answers at {address}"


def _say(address: str, error: grpc.aio.AioRpcError) -> str:
    if trouble := trouble_of(error.details() or "", address, has_identity=ours() is not None):
        return trouble
    said: Mapping[grpc.StatusCode, str] = {
        grpc.StatusCode.UNAVAILABLE: _nothing_at(address),
        grpc.StatusCode.DEADLINE_EXCEEDED: f"{address} said nothing",
        grpc.StatusCode.UNIMPLEMENTED: f"{address} is another service, or another version of it",
    }
    return said.get(error.code(), f"{address} answered {error.code().name}: {error.details()}")
