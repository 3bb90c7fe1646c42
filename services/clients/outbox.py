"""The queue of an exchange: unsent frames, in the order in which they are sent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from esd.services.clients.frame import Frame


class Outbox:
    """Frames that wait to be sent: first repeated frames, then urgent ones, then the others.

    Attributes:
        changed: set when there may be a frame to send; the task that sends frames clears it.
        closed: whether no frame will be added any more.
    """

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.closed = False
        self._again: deque[Frame] = deque()
        self._urgent: deque[Frame] = deque()
        self._others: deque[Frame] = deque()
        self._queues = (self._again, self._urgent, self._others)
        self._numbers = 0
        self._room = asyncio.Event()
        self._room.set()

    def number(self) -> int:
        """Returns the number of the next frame, above all earlier numbers."""
        self._numbers += 1
        return self._numbers

    def put(self, frame: Frame, *, urgent: bool) -> None:
        """Adds a frame that was never sent."""
        (self._urgent if urgent else self._others).append(frame)
        self._room.clear()
        self.changed.set()

    def put_again(self, frames: Iterable[Frame]) -> None:
        """Adds frames that were sent before; they are sent again in this order, before all others."""
        self._again.extendleft(reversed(list(frames)))
        self.changed.set()

    def first(self) -> Frame | None:
        """Returns the next frame to send, after dropping answered and cancelled frames; None if there is none."""
        for queue in self._queues:
            while queue and queue[0].over:
                queue.popleft()
            if queue:
                return queue[0]
        self._room.set()
        return None

    def first_push(self) -> Frame | None:
        """Returns the first frame whose push is not acknowledged."""
        return next((frame for queue in self._queues for frame in queue if frame.pushes), None)

    def take(self, frame: Frame) -> None:
        """Removes a frame, which is sent now."""
        next(queue for queue in self._queues if frame in queue).remove(frame)
        if not self._urgent and not self._others:
            self._room.set()

    async def room(self) -> None:
        """Returns when no frame waits for its first sending."""
        await self._room.wait()

    def empty(self) -> list[Frame]:
        """Removes and returns all frames."""
        frames = [frame for queue in self._queues for frame in queue]
        for queue in self._queues:
            queue.clear()
        self._room.set()
        return frames
