"""The exchange of a client with one server: parcels become frames, and each frame is answered or fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esd.services.clients.frame import Frame
from esd.services.clients.frame_stream import FrameStream
from esd.services.clients.outbox import Outbox
from esd.services.clients.traffic import Traffic
from esd.services.domain.errors import EsdError, Unavailable
from esd.services.domain.parcels import Parcel
from esd.services.domain.tables import TableSpec
from esd.services.runtime.retry import Backoff
from esd.services.wire.frames import PulledRows, encode_parcel

_FAREWELL_SECONDS = 1.0  # for a server to end a stream that its client has closed


class Exchange:
    """Sends parcels to one parameter server, or to another worker, in frames, each of which is answered or fails.

    The first frame opens a stream. When the stream breaks, another one takes its place, and every frame that lacks its
    last answer is sent again, in order, before any other. Two tasks carry all frames: one writes, one reads.

    Args:
        open_stream: opens a call of the stream, whose messages are bytes.
        traffic: the link that the messages pass.
        timeout: seconds that the server may be silent, in addition to the time in which `traffic` moves the bytes; and
            seconds that pulls and gradients may wait at the server for a version.
        patience: by class of error, the seconds for which refused frames are sent again; for `Unavailable` also the
            seconds in which broken streams are replaced. Any other error ends its frame at once.
        server: name of the server, for errors.
    """

    def __init__(
        self,
        open_stream: Callable[[], Any],
        traffic: Traffic,
        timeout: float,
        patience: Mapping[type[EsdError], float],
        server: str,
    ) -> None:
        self._open_stream = open_stream
        self._traffic = traffic
        self._timeout = timeout
        self._patience = patience
        self._server = server
        self._outbox = Outbox()
        self._resting: dict[Frame, asyncio.TimerHandle] = {}  # refused frames, until their pause is over
        self._stream: FrameStream | None = None  # the open one
        self._running: asyncio.Task[None] | None = None

    def send(
        self,
        parcel: Parcel,
        spec: TableSpec,
        rows: NDArray[np.float32] | None = None,
        *,
        epoch: int,
        iteration: int = 0,
        urgent: bool = False,
        trace_parent: str = "",
    ) -> list[Frame]:
        """Queues a parcel, and returns at once: its rows and gradients have been copied into the frames.

        Args:
            parcel: for this server.
            spec: its table.
            rows: float32 [.., W], the array that receives the pulled rows; None if the parcel pulls none.
            epoch: of the plan.
            iteration: the one in which another worker trains the pushed rows; 0 for a parameter server.
            urgent: whether the frames overtake unsent frames that are not urgent.
            trace_parent: the worker's span of the iteration, as W3C's traceparent; empty: there is none.

        Returns:
            The frames of the parcel, whose futures give the results.

        Raises:
            Unavailable: the exchange is closed.
        """
        frames = list(self._frames(parcel, spec, rows, epoch, iteration, trace_parent))
        for frame in frames:
            self._submit(frame, urgent=urgent)
        return frames

    async def carry(
        self, parcel: Parcel, spec: TableSpec, rows: NDArray[np.float32] | None = None, *, epoch: int
    ) -> list[Frame]:
        """Exchanges a parcel of any size; frames are made one by one, so that few are in memory at a time.

        Args:
            parcel: for this server.
            spec: its table.
            rows: float32 [.., W], the array that receives the pulled rows; None if the parcel pulls none.
            epoch: of the plan.

        Returns:
            The frames of the parcel, all answered.

        Raises:
            Unavailable: the exchange is closed, or the server is away for longer than `patience`.
            EsdError: the server has refused a frame.
        """
        frames: list[Frame] = []
        try:
            for frame in self._frames(parcel, spec, rows, epoch):
                frames.append(frame)
                self._submit(frame)
                await self._outbox.room()
            await asyncio.gather(*(future for frame in frames for future in (frame.stored, frame.pulled)))
        finally:
            for frame in frames:
                frame.cancel()
        return frames

    def _frames(
        self,
        parcel: Parcel,
        spec: TableSpec,
        rows: NDArray[np.float32] | None,
        epoch: int,
        iteration: int = 0,
        trace_parent: str = "",
    ) -> Iterator[Frame]:
        for piece in parcel.pieces(spec, self._traffic.chunk_bytes):
            message = encode_parcel(
                piece,
                spec,
                self._outbox.number(),
                epoch=epoch,
                wait_seconds=self._timeout,
                iteration=iteration,
                trace_parent=trace_parent,
            )
            yield Frame(message, PulledRows(piece.pulls, rows, spec) if len(piece.pulls) and rows is not None else None)

    def _submit(self, frame: Frame, *, urgent: bool = False) -> None:
        if self._outbox.closed:
            raise Unavailable(f"the client of {self._server} is closed")
        self._outbox.put(frame, urgent=urgent)
        if self._running is None:
            self._running = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Ends the stream. Unanswered frames fail with Unavailable, and the stream is cancelled then."""
        self._outbox.closed = True
        self._outbox.changed.set()
        if self._running is not None:
            if self._stream is not None and self._stream.idle:
                await asyncio.wait([self._running], timeout=_FAREWELL_SECONDS)
            if self._stream is not None:
                self._stream.end()
                await asyncio.wait([self._running], timeout=_FAREWELL_SECONDS)
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running

    async def _run(self) -> None:
        backoff: Backoff | None = None
        try:
            while not self._outbox.closed:
                if self._outbox.first() is None:
                    self._outbox.changed.clear()
                    await self._outbox.changed.wait()
                    continue
                stream = FrameStream(
                    self._open_stream(), self._outbox, self._traffic, self._timeout, self._refused, self._server
                )
                self._stream = stream
                error = await stream.run()
                self._stream = None
                if self._outbox.closed:
                    break
                if stream.useful:
                    backoff = None
                if isinstance(error, Unavailable):
                    if self._outbox.first() is None:
                        continue  # resting frames need no stream yet
                    backoff = backoff or Backoff(self._patience.get(Unavailable, 0.0))
                    with suppress(EsdError):
                        await backoff.pause(error)
                        continue
                    backoff = None
                self._fail_all(error)
        finally:
            self._fail_all(Unavailable(f"the client of {self._server} was closed"))

    def _refused(self, frame: Frame, error: EsdError) -> None:
        """Sends a refused frame again after a pause, or fails it when its patience is over."""
        kind = next((kind for kind in self._patience if isinstance(error, kind)), None)
        try:
            if kind is None:
                raise error
            pause = frame.pause(kind, error, self._patience[kind])
        except EsdError:
            frame.fail(error)
        else:
            self._resting[frame] = asyncio.get_running_loop().call_later(pause, self._rested, frame)

    def _rested(self, frame: Frame) -> None:
        del self._resting[frame]
        self._outbox.put_again([frame])

    def _fail_all(self, error: EsdError) -> None:
        for timer in self._resting.values():
            timer.cancel()
        for frame in [*self._outbox.empty(), *self._resting]:
            frame.fail(error)
        self._resting.clear()
