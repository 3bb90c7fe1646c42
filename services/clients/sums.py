"""The client of sums: a worker's streams to the parameter servers that add its vectors to the other workers'."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from numpy.typing import NDArray

from esd.services.clients.parameter_server import ParameterServerConnection
from esd.services.clients.sum_stream import SumStream, Vector
from esd.services.clients.traffic import Traffic
from esd.services.domain.errors import EsdError, Unavailable
from esd.services.domain.sum_pieces import SumMember, SumPiece
from esd.services.runtime.retry import repeated
from esd.services.runtime.tasks import all_of

_SILENCE = 1.25  # the server reports by itself that a member is late, and gets this multiple of the patience to do so


class SumClient:
    """Adds the vectors of one worker to the vectors of the other members of its epoch, over a stream to every server.

    A stream that breaks is opened again, and both sides continue where they have stopped.

    Args:
        servers: connections to all servers of the job, in shard order.
        member: this worker, and its group.
        traffic: the link that the messages pass.
    """

    def __init__(self, servers: Sequence[ParameterServerConnection], member: SumMember, traffic: Traffic) -> None:
        self._servers = servers
        self._member = member
        self._traffic = traffic
        self._loop = asyncio.get_running_loop()
        self._streams: list[SumStream] = []
        self._running: set[Vector] = set()
        self._iteration = -1  # of the last vector
        self._number = 0  # of the next vector in it
        self._failure: EsdError | None = None
        self._watch: asyncio.TimerHandle | None = None

    async def join(self, patience: float) -> None:
        """Opens the streams; returns when all members have come.

        Args:
            patience: seconds for which failed attempts are repeated while a server, or a member, is away, here and when
                a stream breaks.

        Raises:
            DeadlineExceeded: not all members came in time.
            StaleEpoch: the epoch is over.
            FailedPrecondition: another worker has the slot.
            Unavailable: a server, or a member, is away for too long.
        """
        await repeated(self._join, patience)
        for stream in self._streams:
            stream.run(patience)
        self._set_watch()

    def start(self, iteration: int, vector: NDArray[Any], *, zeros: bool, wanted: bool = True) -> Future[None]:
        """Begins to replace a vector by its sum over all members; any one thread may call it.

        All members start vectors of the same lengths and types in the same order.

        Args:
            iteration: of the plan, which never falls.
            vector: [v], contiguous, float32, float64, int32 or int64, which the caller leaves alone until it is done.
            zeros: whether all values are 0, so that they need not be sent.
            wanted: whether this worker has a use for the sum, and is sent it. Else `vector` stays as it is.

        Returns:
            The result: done when all members have sent the vector, and the sum is in `vector` if it is wanted.
        """
        if iteration != self._iteration:
            self._iteration, self._number = iteration, 0
        each = Vector(iteration, self._number, vector, zeros, wanted)
        self._number += 1
        if self._failure is not None:  # the loop may have ended with it
            self._end(each, self._failure)
        else:
            self._loop.call_soon_threadsafe(self._start, each)
        return each.done

    def leave(self) -> None:
        """Fails all sums, present and later ones; any thread may call it."""
        if self._failure is None:
            self._loop.call_soon_threadsafe(self.fail, Unavailable("this worker has left the epoch"))

    def fail(self, error: EsdError) -> None:
        """Fails all sums, present and later ones, unless they have failed before."""
        if self._failure is None:
            self._failure = error
        for each in tuple(self._running):
            self._end(each, self._failure)
        for stream in self._streams:
            stream.leave()

    async def close(self) -> None:
        """Closes the streams; unfinished sums fail."""
        if self._watch is not None:
            self._watch.cancel()
        self.fail(Unavailable("this worker has left the epoch"))
        await all_of(stream.close() for stream in self._streams)

    async def _join(self) -> None:
        shards = len(self._servers)
        streams = [
            SumStream(server.channel, (place, shards), self._member, self._traffic, self)
            for place, server in enumerate(self._servers)
        ]
        try:
            await all_of(stream.join() for stream in streams)
        except BaseException:
            for stream in streams:
                stream.cancel()
            raise
        self._streams = streams

    def _start(self, vector: Vector) -> None:
        self._running.add(vector)
        if self._failure is not None:
            self._end(vector, self._failure)
            return
        for stream in self._streams:
            stream.put(vector)
        if not vector.missing:
            self._end(vector)

    def arrived(self, vector: Vector, piece: SumPiece) -> None:
        """Records a piece of a sum."""
        if vector.done.done():  # it has failed
            return
        if vector.wanted:
            place = slice(piece.name.start, piece.name.start + piece.name.values)
            vector.values[place] = 0 if piece.values is None else piece.values
        vector.missing -= 1
        if not vector.missing:
            self._end(vector)

    def _end(self, vector: Vector, error: EsdError | None = None) -> None:
        self._running.discard(vector)
        if vector.done.done():
            return
        if error is None:
            vector.done.set_result(None)
        else:
            vector.done.set_exception(type(error)(str(error)))

    def _set_watch(self) -> None:
        self._watch = self._loop.call_later(self._member.patience / 4, self._notice_silence)

    def _notice_silence(self) -> None:
        longest = _SILENCE * self._member.patience
        for stream in self._streams:
            if stream.waits and time.monotonic() - stream.last_sign > longest:
                self.fail(Unavailable(f"{stream.server} has sent no part of a sum for {longest:.0f} s"))
        self._set_watch()
