"""A lock that many threads may share, or one may have for itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class SharedLock:
    """Any number of threads share it at a time; one that wants it for itself waits until they are done."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._sharing = 0
        self._exclusive = False

    @contextmanager
    def shared(self) -> Iterator[None]:
        """While the block runs, nobody has the lock for itself."""
        with self._changed:
            self._changed.wait_for(lambda: not self._exclusive)
            self._sharing += 1
        try:
            yield
        finally:
            self.unshare()

    def try_share(self) -> bool:
        """Shares the lock if that takes no waiting; whoever gets True calls `unshare`."""
        with self._changed:
            self._sharing += not self._exclusive
            return not self._exclusive

    def unshare(self) -> None:
        """Shares the lock no more."""
        with self._changed:
            self._sharing -= 1
            if self._exclusive:
                self._changed.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """While the block runs, nobody else has the lock in either way. Newcomers wait behind it."""
        with self._changed:
            self._changed.wait_for(lambda: not self._exclusive)
            self._exclusive = True
            self._changed.wait_for(lambda: self._sharing == 0)
        try:
            yield
        finally:
            with self._changed:
                self._exclusive = False
                self._changed.notify_all()
