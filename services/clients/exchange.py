"""What a client has to exchange with one server, over as many streams as it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from esd.services.clients.frame_stream import FrameStream
from esd.services.clients.frames import Frame
from esd.services.clients.outbox import Outbox
from esd.services.clients.traffic import Traffic
from esd.services.domain.errors import EsdError, Unavailable
from esd.services.runtime.retry import Backoff

_FAREWELL_SECONDS = 1.0  # for a server to end a stream that its client has closed


class Exchange:
    """Sends frames to one parameter server, or to another worker, and sees to it that each is answered or fails.

    A stream is opened by the first frame. When it breaks, another takes its place, and every frame that was not
    answered to the end is sent again, in order, before any other. Two tasks carry all frames: one writes, one reads.

    Args:
        open_stream: opens a call of the stream, whose messages are bytes.
        traffic: what the messages pass.
        timeout: seconds that the server may be silent, beside the time in which `traffic` moves the bytes.
        patience: for how many seconds frames are sent again that were refused with an error of this class, or whose
            streams break again and again (`Unavailable`). Any other error ends its frame at once.
        server: who that is, for errors.
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
        self._resting: dict[Frame, asyncio.TimerHandle] = {}  # refused, and to be sent again after a pause
        self._stream: FrameStream | None = None  # that is open
        self._running: asyncio.Task[None] | None = None

    def number(self) -> int:
        """Returns the number of another frame, above all before."""
        return self._outbox.number()

    def submit(self, frame: Frame, *, urgent: bool = False) -> None:
        """Sends a frame as soon as those before it, and the server's credit, allow; returns at once.

        Args:
            frame: made with a number of this exchange.
            urgent: it goes before frames that are not, and were not sent yet.

        Raises:
            Unavailable: the exchange is closed.
        """
        if self._outbox.closed:
            raise Unavailable(f"the client of {self._server} is closed")
        self._outbox.put(frame, urgent=urgent)
        if self._running is None:
            self._running = asyncio.create_task(self._run())

    async def room(self) -> None:
        """Returns when no frame waits to be sent for the first time: who has many makes them one by one."""
        await self._outbox.room()

    async def close(self) -> None:
        """Ends the stream, at once if something on it is not answered: that fails with Unavailable."""
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
                        continue  # what rests needs no stream until then
                    backoff = backoff or Backoff(self._patience.get(Unavailable, 0.0))
                    with suppress(EsdError):
                        await backoff.pause(error)
                        continue
                    backoff = None
                self._fail_all(error)
        finally:
            self._fail_all(Unavailable(f"the client of {self._server} was closed"))

    def _refused(self, frame: Frame, error: EsdError) -> None:
        """Sends a refused frame again later, if that may help."""
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
