"""The workers' measurements, as input to later decisions."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.learned import Arrays

LINK_SMOOTHING = 0.2  # weight of the newest measurement of a link's speed
_SMOOTHING = 0.2  # least weight of the newest measurement of a computation's time
_DEAD_BAND = 0.1  # a speed in use changes only if its smoothed measurement differs by a larger share
_SLOWEST = 1e-4  # least speed of a link, relative to the fastest; integer link costs need a bound
_FARTHER_APART = (1 + _DEAD_BAND) / (1 - _DEAD_BAND)  # the dead band can widen the ratio of two speeds by this factor


@dataclass(frozen=True, slots=True)
class Feedback:
    """The measurements of one iteration.

    Feedback is part of a planner's input: the same batches and the same feedback give the same plans.

    Attributes:
        seconds: float64 [n], each worker's time for rows, plans and computation, without waits for other workers.
        bandwidths: float64 [n], bytes per second measured on each link; 0 if there was too little traffic to measure.
        necessary_seconds: the time of the iteration without any transfer of rows (Herald §4.1); 0 if it was not
            measured.
        dense_seconds: float64 [n], each link's time for the dense sums, which depends on no samples; None: not known.
    """

    seconds: NDArray[np.float64]
    bandwidths: NDArray[np.float64]
    necessary_seconds: float = 0.0
    dense_seconds: NDArray[np.float64] | None = None


class ComputeTimes:
    """Every worker's computing time per sample: its measured time minus the cost model's time for its operations.

    The result is negative if a link is faster than the cost model assumes.

    Feedback arrives in the order of the iterations, one per iteration. `plan` announces an iteration when it is
    planned.
    """

    def __init__(self, workers: int) -> None:
        self._planned: deque[tuple[NDArray[np.float64], NDArray[np.int32]]] = deque()
        self._computing = np.zeros(workers)
        self._samples = np.zeros(workers)
        self._updates = 0

    def plan(self, link_seconds: NDArray[np.float64], workloads: NDArray[np.int32]) -> None:
        """Announces an iteration, with its expected time on each link, float64 [n], and its samples, int32 [n]."""
        self._planned.append((link_seconds, workloads))

    def update(self, seconds: NDArray[np.float64]) -> None:
        """Records the workers' times, float64 [n] seconds, in the earliest announced iteration without feedback."""
        if not self._planned:
            return
        link_seconds, workloads = self._planned.popleft()
        self._updates += 1
        weights = max(1 / self._updates, _SMOOTHING) * (workloads > 0)  # without samples there is no time of one
        self._computing += weights * (seconds - link_seconds - self._computing)
        self._samples += weights * (workloads - self._samples)

    def save(self) -> dict[str, NDArray[Any]]:
        """Returns the smoothed times and the announced iterations without feedback, for `load`."""
        links, samples = zip(*self._planned, strict=True) if self._planned else ((), ())
        workers = len(self._computing)
        return {
            "computing": self._computing,
            "samples": self._samples,
            "updates": np.array(self._updates),
            "planned_seconds": np.reshape(np.array(links, np.float64), (-1, workers)),
            "planned_samples": np.reshape(np.array(samples, np.int32), (-1, workers)),
        }

    def load(self, saved: Arrays) -> None:
        """Restores the result of `save`."""
        self._computing, self._samples = saved["computing"], saved["samples"]
        self._updates = int(saved["updates"])
        self._planned = deque(zip(saved["planned_seconds"], saved["planned_samples"], strict=True))

    @property
    def known(self) -> bool:
        """Whether there was any feedback."""
        return self._updates > 0

    @property
    def sample_seconds(self) -> NDArray[np.float64]:
        """Seconds per sample, float64 [n]; 0 before the first feedback, and for workers without samples so far."""
        return np.divide(self._computing, self._samples, out=np.zeros_like(self._samples), where=self._samples > 0)


class MeasuredLinks:
    """Bandwidths for decisions: the registered values at first, then smoothed measurements with a dead band.

    The dead band keeps decisions independent of noise: a bandwidth changes only when its smoothed measurement differs
        by more than 10%.

    Attributes:
        in_use: float64 [n], the bandwidths for decisions, bytes per second.
    """

    def __init__(self, bandwidths: Sequence[float], slowest: float = 0.0) -> None:
        """Starts with the registered bandwidths.

        Args:
            bandwidths: bytes per second of each link, [n].
            slowest: lower bound of a measured bandwidth, relative to the fastest link.
        """
        self._means = np.asarray(bandwidths, np.float64).copy()
        self._slowest = min(1.0, max(_SLOWEST, _FARTHER_APART * slowest))
        self.in_use = self._means.copy()

    def update(self, measured: NDArray[np.float64]) -> bool:
        """Records measured bandwidths, float64 [n], 0 for no measurement. Returns whether `in_use` has changed."""
        seen = measured > 0
        self._means[seen] += LINK_SMOOTHING * (measured[seen] - self._means[seen])
        followed = np.maximum(self._means, self._slowest * self._means.max())
        changed = np.abs(followed - self.in_use) > _DEAD_BAND * self.in_use
        self.in_use[changed] = followed[changed]
        return bool(changed.any())

    def save(self) -> dict[str, NDArray[Any]]:
        """Returns the speeds, for `load`."""
        return {"means": self._means, "in_use": self.in_use}

    def load(self, saved: Arrays) -> None:
        """Restores saved speeds."""
        self._means, self.in_use = saved["means"], saved["in_use"]
