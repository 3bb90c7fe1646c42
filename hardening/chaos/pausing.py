"""A sample stream that can pause, as a stream of visits does at night."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Self

from esd.run.stream import global_batches
from esd.services.domain.batches import SampleBatch


class PausingStream:
    """Yields global batches, and none while it pauses; the end of a `with` block ends the pauses.

    Args:
        samples: the samples, which can be read more than once.
        batch_size: samples of a global batch.
    """

    def __init__(self, samples: Iterable[SampleBatch], batch_size: int) -> None:
        self._samples = samples
        self._batch_size = batch_size
        self._pauses = 0
        self._flows = threading.Event()  # the driver reads the stream in a thread of its own
        self._flows.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._flows.set()

    def __iter__(self) -> Iterator[SampleBatch]:
        for batch in global_batches(self._samples, self._batch_size):
            self._flows.wait()
            yield batch

    async def pause_for(self, seconds: float) -> None:
        """Yields no batch for so long. Pauses may overlap."""
        self._pauses += 1
        self._flows.clear()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._pauses -= 1
            if not self._pauses:
                self._flows.set()
