"""A rank but the first: a process that makes the calls that rank 0 tells it, and nothing else (RK1)."""

from __future__ import annotations

import logging
import os
import queue
import socket
import threading
import time
from collections.abc import Callable

import numpy as np

from signalbox.v1 import ranks_pb2
from worker_svc.ranks import frames
from worker_svc.ranks.blocks import sizes_of
from worker_svc.ranks.calls import CallCodec, read_block_copies, read_state_copies
from worker_svc.ranks.runners import FollowingRunner
from worker_svc.ranks.states import sizes_of as sizes_of_states
from worker_svc.transfer.block_memory import BlockMemory

logger = logging.getLogger(__name__)
BEAT_S = 0.25


class Connection:
    """Rank 0, as a follower sees it. The process ends when it is gone."""

    def __init__(self, told: socket.socket, says: socket.socket) -> None:
        """told, says: where we are told what to do, and where we say what we did; one socket on one host."""
        self._told, self._says, self._lock = told, says, threading.Lock()
        self._calls: queue.SimpleQueue[ranks_pb2.RankCall] = queue.SimpleQueue()

    def setup(self) -> ranks_pb2.RankSetup:
        """The first message. From then on what comes is read by a thread, and another says that we are here."""
        first = frames.receive(self._told, ranks_pb2.RankMessage)
        if first is None or not first.HasField("setup"):
            raise SystemExit(1)
        for target in (self._read, self._beat):
            threading.Thread(target=target, name="rank-0", daemon=True).start()
        return first.setup

    def next_call(self) -> ranks_pb2.RankCall:
        """What is to be done next."""
        return self._calls.get()

    def say(self, answer: ranks_pb2.RankAnswer) -> None:
        """Tells rank 0 something."""
        with self._lock:
            frames.send(self._says, answer)

    def _read(self) -> None:
        try:
            while (message := frames.receive(self._told, ranks_pb2.RankMessage)) is not None:
                self._calls.put(message.call)
        finally:
            os._exit(0)  # whatever the other threads wait for: nobody is there for whom it would be

    def _beat(self) -> None:
        try:
            while True:
                self.say(ranks_pb2.RankAnswer(beat=True))
                time.sleep(BEAT_S)
        finally:
            os._exit(0)


def follow(connection: Connection, load: Callable[[], FollowingRunner]) -> None:
    """Loads this rank's part and makes calls until rank 0 is gone."""
    try:
        runner = load()
    except Exception as error:
        logger.exception("this rank's part of the model cannot be loaded")
        failure = f"{type(error).__name__}: {error}"
        connection.say(ranks_pb2.RankAnswer(loaded=ranks_pb2.RankDone(failure=failure)))
        time.sleep(BEAT_S)  # so that it is heard ahead of our end
        raise SystemExit(1) from None
    codec = CallCodec(runner.info)
    connection.say(ranks_pb2.RankAnswer(loaded=ranks_pb2.RankDone(likeness=runner.likeness)))
    while True:
        call = connection.next_call()
        done = ranks_pb2.RankDone(number=call.number)
        started, before = time.perf_counter(), runner.ranks.seconds
        try:
            done.content = make(call, runner, codec)
            done.digest = runner.digest
        except Exception as error:
            logger.warning("call %d failed: %r", call.number, error)
            done.failure = f"{type(error).__name__}: {error}"
        done.num_collectives = runner.ranks.num_calls
        done.took_us = round(1e6 * (time.perf_counter() - started))
        done.collectives_us = round(1e6 * (runner.ranks.seconds - before))
        connection.say(ranks_pb2.RankAnswer(done=done))


def make(call: ranks_pb2.RankCall, runner: FollowingRunner, codec: CallCodec) -> bytes:
    """Makes one call; what is to be answered to it, if anything is."""
    runner.digest = 0
    which = call.WhichOneof("call")
    if which == "execute":
        return runner.follow(codec.read_batch(call.execute))
    if which == "copy_blocks":
        runner.copy_blocks(read_block_copies(call.copy_blocks))
    elif which == "copy_states":
        runner.copy_states(read_state_copies(call.copy_states))
    elif which == "check":
        runner.check()
    elif which == "write_state":
        state = call.write_state
        runner.write_state(state.slot, state.version, state.num_drafts, state.content)
    elif which == "read_state":
        state = call.read_state
        return runner.read_state(state.slot, state.version, state.num_drafts)
    elif which == "state_sizes":
        return sizes_of_states(runner.states)
    else:
        return _of_blocks(call, runner)
    return b""


def _of_blocks(call: ranks_pb2.RankCall, runner: FollowingRunner) -> bytes:
    memory, which = runner.block_memory, call.WhichOneof("call")
    assert isinstance(memory, BlockMemory), "rank 0 has such memory, too"
    if which == "block_sizes":
        return sizes_of(memory)
    if which == "read_blocks":
        return memory.read(call.read_blocks.group, call.read_blocks.blocks)
    if which == "write_blocks":
        memory.write(call.write_blocks.group, call.write_blocks.blocks, call.write_blocks.content)
        return b""
    if which == "record_sizes":
        return np.array(runner.blocks.record_bytes(), "<u8").tobytes()
    if which == "read_records":
        told = call.read_records
        return runner.blocks.reads_aside(told.group, np.array(told.blocks, np.int32))().tobytes()
    if which == "write_records":
        told = call.write_records
        records = np.frombuffer(bytearray(told.content), np.uint8).reshape(len(told.blocks), -1)
        runner.blocks.writes_aside(told.group, np.array(told.blocks, np.int32))(records)
        return b""
    raise ValueError(f"call {call.number} is of no kind that this version knows")
