"""Pushing rows before they are needed, while links are idle (FRUGAL §3.3)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.decision import Decision
from esd.dispatcher.core.feedback import Feedback
from esd.dispatcher.core.learned import Arrays, of, within
from esd.native.engine import Engine
from esd.services.domain.batches import SampleBatch

LOOKAHEAD = 10  # iterations whose reads are known, L (FRUGAL §3.2)
_SMOOTHING = 0.2  # least weight of the newest iteration


class FlushAhead:
    """Tells an engine which rows later iterations read, and how many each worker may push before that.

    A worker's link is idle while the slowest worker transfers and computes longer than it transfers itself. As many
    rows as fit that time are pushed ahead; before anything is known, none are.
    """

    def __init__(self, bandwidths: Sequence[float], row_bytes: int) -> None:
        """Starts without feedback.

        Args:
            bandwidths: of each link, bytes per second, [n], until they are measured.
            row_bytes: bytes on the wire of a row; of the largest, where tables differ.
        """
        self._bandwidths = np.array(bandwidths, np.float64)
        self._row_bytes = row_bytes
        self._planned: deque[NDArray[np.float64]] = deque()  # bytes by worker, of iterations without feedback
        self._needed = _Mean(len(bandwidths))  # bytes that an iteration needs
        self._computing = _Mean(len(bandwidths))  # seconds of an iteration
        self._announced = 0  # the last iteration whose reads the engine knows

    def announce(self, engine: Engine, lookahead_batches: Sequence[SampleBatch]) -> None:
        """Announces the reads of the batches after the next one to the engine, before the next one is prepared."""
        for iteration, batch in enumerate(lookahead_batches[:LOOKAHEAD], engine.iteration + 1):
            if iteration > self._announced:
                engine.look_ahead(np.unique(batch.ids), iteration)
                self._announced = iteration

    def limits(self) -> list[int]:
        """Returns how many rows each worker may push ahead in the next iteration, [n]."""
        if not self._computing.known:
            return [0] * len(self._bandwidths)
        needed = self._needed.value / self._bandwidths
        idle = (needed + self._computing.value).max() - needed
        return [int(rows) for rows in idle * self._bandwidths / self._row_bytes]

    def observe(self, feedback: Feedback) -> None:
        """Records the measurements of the earliest iteration not yet observed."""
        if not self._planned:
            return
        measured = feedback.bandwidths > 0
        self._bandwidths[measured] = feedback.bandwidths[measured]
        self._computing.add(np.maximum(feedback.seconds - self._planned.popleft() / self._bandwidths, 0.0))

    def learn(self, decision: Decision) -> None:
        """Records the planned bytes of an iteration; a partial gradient that is pushed ahead counts as a row."""
        moved = decision.moved_bytes.total.astype(np.float64)
        self._planned.append(moved)
        self._needed.add(np.maximum(moved - self._row_bytes * decision.columns.figures, 0.0))

    def save(self) -> dict[str, NDArray[Any]]:
        """Returns the state behind the limits, and the iterations that wait for feedback, for `load`."""
        planned = np.reshape(np.array(list(self._planned), np.float64), (-1, len(self._bandwidths)))
        parts = {"needed": self._needed.save(), "computing": self._computing.save()}
        return within(parts) | {"bandwidths": self._bandwidths, "planned": planned}

    def load(self, saved: Arrays) -> None:
        """Restores the saved state; later reads are announced anew."""
        self._needed.load(of(saved, "needed"))
        self._computing.load(of(saved, "computing"))
        self._bandwidths = saved["bandwidths"]
        self._planned = deque(saved["planned"])


class _Mean:
    """A mean of everything at first, and of the latest iterations later."""

    def __init__(self, workers: int) -> None:
        self.value = np.zeros(workers)
        self._added = 0

    @property
    def known(self) -> bool:
        return self._added > 0

    def add(self, values: NDArray[np.float64]) -> None:
        self._added += 1
        self.value += max(1 / self._added, _SMOOTHING) * (values - self.value)

    def save(self) -> dict[str, NDArray[Any]]:
        return {"value": self.value, "added": np.array(self._added)}

    def load(self, saved: Arrays) -> None:
        self.value = saved["value"]
        self._added = int(saved["added"])
