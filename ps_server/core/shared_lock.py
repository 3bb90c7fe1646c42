"""A lock that many threads may share, or that one thread may hold exclusively."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class SharedLock:
    """A readers-writer lock: a thread that wants it exclusively waits until all sharers have left."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._sharing = 0
        self._exclusive = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Holds the lock shared during the block: no thread has it exclusively."""
        with self._changed:
            self._changed.wait_for(lambda: not self._exclusive)
            self._sharing += 1
        try:
            yield
        finally:
            self.unshare()

    def try_share(self) -> bool:
        """Shares the lock unless that would wait; returns whether it did. The caller must call `unshare` after True."""
        with self._changed:
            self._sharing += not self._exclusive
            return not self._exclusive

    def unshare(self) -> None:
        """Gives a share of the lock back."""
        with self._changed:
            self._sharing -= 1
            if self._exclusive:
                self._changed.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Holds the lock exclusively during the block. Threads that arrive meanwhile wait for the block to end."""
        with self._changed:
            self._changed.wait_for(lambda: not self._exclusive)
            self._exclusive = True
            # The flag is set before the wait, so that new sharers cannot starve this thread.
            self._changed.wait_for(lambda: self._sharing == 0)
        try:
            yield
        finally:
            with self._changed:
                self._exclusive = False
                self._changed.notify_all()
