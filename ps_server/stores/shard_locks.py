"""Who serves a checkpoint directory: locks that end with the process that holds them."""

from __future__ import annotations

import fcntl
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from ps_server.core.shard import Shard
from services.domain.errors import FailedPrecondition


class ShardLocks:
    """The locks that this process holds in one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._held: list[BinaryIO] = []

    def acquire(self, shard: Shard) -> None:
        """Takes the lock of a shard.

        Raises:
            FailedPrecondition: another process holds it, or one of another number of shards.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        own = self._directory / f"shard-{shard.index}-of-{shard.count}.lock"
        self._held.append(self._lock(own))
        for path in self._directory.glob("shard-*.lock"):
            if not path.stem.endswith(f"-of-{shard.count}"):
                self._lock(path).close()

    def release(self) -> None:
        """Gives all of them up."""
        for file in self._held:
            file.close()
        self._held.clear()

    def _lock(self, path: Path) -> BinaryIO:
        file = path.open("ab")
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        file.close()
        raise FailedPrecondition(
            f"another process serves {path.stem} in checkpoint directory {self._directory}; stop it, or use another "
            "directory"
        )
