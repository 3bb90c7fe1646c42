"""The frames that a client has not sent yet, in the order in which they go."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable

from esd.services.clients.frames import Frame


class Outbox:
    """Frames that wait to be sent: first those that were sent before, then the urgent ones, then the others.

    Attributes:
        changed: set when there may be something to send; whoever has looked clears it.
        closed: no frame comes any more.
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
        """Returns the number of another frame, above all before."""
        self._numbers += 1
        return self._numbers

    def put(self, frame: Frame, *, urgent: bool) -> None:
        """Takes a frame that was never sent."""
        (self._urgent if urgent else self._others).append(frame)
        self._room.clear()
        self.changed.set()

    def put_again(self, frames: Iterable[Frame]) -> None:
        """Takes frames that were sent before, to be sent in this order, before those that it has."""
        self._again.extendleft(reversed(list(frames)))
        self.changed.set()

    def first(self) -> Frame | None:
        """Returns the frame that is to be sent next; what nobody waits for any more is dropped."""
        for queue in self._queues:
            while queue and queue[0].over:
                queue.popleft()
            if queue:
                return queue[0]
        self._room.set()
        return None

    def first_push(self) -> Frame | None:
        """Returns the first of the frames that still have to push something."""
        return next((frame for queue in self._queues for frame in queue if frame.pushes), None)

    def take(self, frame: Frame) -> None:
        """Takes out a frame: it is being sent."""
        next(queue for queue in self._queues if frame in queue).remove(frame)
        if not self._urgent and not self._others:
            self._room.set()

    async def room(self) -> None:
        """Returns when no frame waits to be sent for the first time."""
        await self._room.wait()

    def empty(self) -> list[Frame]:
        """Takes out all frames."""
        frames = [frame for queue in self._queues for frame in queue]
        for queue in self._queues:
            queue.clear()
        self._room.set()
        return frames
