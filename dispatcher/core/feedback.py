"""What the workers measured, as input to later decisions."""

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
_DEAD_BAND = 0.1  # a link whose mean speed differs relatively less than this from the one in use is left alone
_SLOWEST = 1e-4  # least speed of a link, relative to the fastest; integer link costs need a bound
_FARTHER_APART = (1 + _DEAD_BAND) / (1 - _DEAD_BAND)  # two speeds in use, than those that they follow


@dataclass(frozen=True, slots=True)
class Feedback:
    """One iteration as the workers measured it.

    Feedback is part of a planner's input: the same batches and the same feedback give the same plans.

    Attributes:
        seconds: float64 [n], what each worker took for transfers and computation, without waiting for others.
        bandwidths: float64 [n], bytes per second seen on each link, 0 where there was too little traffic to tell.
        necessary_seconds: what the iteration takes all workers together without any transfer of rows (Herald §4.1); 0
            where nobody has measured it.
    """

    seconds: NDArray[np.float64]
    bandwidths: NDArray[np.float64]
    necessary_seconds: float = 0.0


class ComputeTimes:
    """What every worker computes per sample: the time it took, less what the cost model says its operations took.

    Where a link is faster than the cost model has it, that is negative.

    Feedback comes in the order of the iterations, one for each; `plan` announces an iteration when it is planned.
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
        """Takes in how long every worker took, float64 [n], for the first announced iteration that waits for it."""
        if not self._planned:
            return
        link_seconds, workloads = self._planned.popleft()
        self._updates += 1
        weight = max(1 / self._updates, _SMOOTHING)
        self._computing += weight * (seconds - link_seconds - self._computing)
        self._samples += weight * (workloads - self._samples)

    def save(self) -> dict[str, NDArray[Any]]:
        """Returns what is known, and the iterations that wait for feedback, for `load`."""
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
        """Goes on with what was saved."""
        self._computing, self._samples = saved["computing"], saved["samples"]
        self._updates = int(saved["updates"])
        self._planned = deque(zip(saved["planned_seconds"], saved["planned_samples"], strict=True))

    @property
    def known(self) -> bool:
        """Whether there was any feedback."""
        return self._updates > 0

    @property
    def sample_seconds(self) -> NDArray[np.float64]:
        """Seconds per sample, float64 [n]; 0 before any feedback, and for workers that have had no samples."""
        return np.divide(self._computing, self._samples, out=np.zeros_like(self._samples), where=self._samples > 0)


class MeasuredLinks:
    """Bandwidths that follow measurements: the registered ones at first, then smoothed measurements with a dead band.

    The dead band keeps decisions from depending on noise: a link counts as changed when its smoothed speed is more than
    10% off.

    Attributes:
        in_use: float64 [n], the bandwidths that decisions go by, bytes per second.
    """

    def __init__(self, bandwidths: Sequence[float], slowest: float = 0.0) -> None:
        """Starts with the registered bandwidths, [n]; measured ones stay above `slowest`, relative to the fastest."""
        self._means = np.asarray(bandwidths, np.float64).copy()
        self._slowest = min(1.0, max(_SLOWEST, _FARTHER_APART * slowest))
        self.in_use = self._means.copy()

    def update(self, measured: NDArray[np.float64]) -> bool:
        """Takes in measured bandwidths, float64 [n], 0 for no measurement. Returns whether `in_use` has changed."""
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
        """Goes on with the speeds that were saved."""
        self._means, self.in_use = saved["means"], saved["in_use"]
