"""Workloads that follow the workers' measured times, so that nobody waits for the slowest."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from services.domain.errors import InvalidArgument

_SMOOTHING = 0.3  # weight of the newest iteration in a worker's mean time
# Exponent of the correction: 1 would jump to the fixed point of the last measurement, and overshoot. Measurements that
# come d iterations late allow a (d + 1)-th of it, or corrections pile up before their effect is seen.
_DAMPING = 0.3
_FOLLOWING = 0.1  # weight of an iteration's departure from the shares
_ALTERNATIONS = 20
_LEAST_SHARE = 1e-3  # of the mean time; a worker that is measured as faster counts as this fast


class BalancedWorkloads:
    """A damped controller of the workloads m_j: workers that took longer than the mean get fewer samples.

    Every worker's time is smoothed; its fractional workload is multiplied by (mean time / its time)^(0.3 / (d + 1)) for
    measurements that arrive d iterations late, clipped to the limits, and all are scaled to sum to k again. The fixed
    point has equal times for all workers within their limits.
    """

    def __init__(self, workloads: Sequence[int], least: Sequence[int], most: Sequence[int], *, delay: int = 0) -> None:
        """Starts at given workloads.

        Args:
            workloads: m_j to start with, [n].
            least: lower limits, [n].
            most: upper limits, [n].
            delay: how many further iterations are planned before the times of one are known.

        Raises:
            InvalidArgument: workloads are not within the limits.
        """
        for worker, (m, low, high) in enumerate(zip(workloads, least, most, strict=True)):
            if not 0 <= low <= m <= high:
                raise InvalidArgument(f"workload of worker {worker} is {m}, its limits are {low}..{high}")
        self._total = sum(workloads)
        self._exponent = _DAMPING / (delay + 1)
        self._least = np.asarray(least, np.float64)
        self._most = np.asarray(most, np.float64)
        self._shares = np.asarray(workloads, np.float64)
        self._times: NDArray[np.float64] | None = None

    def update(self, seconds: NDArray[np.float64]) -> None:
        """Takes in how long every worker took for an iteration, float64 [n], waiting for others left out."""
        if self._times is None:
            self._times = seconds.astype(np.float64)
        else:
            self._times = (1 - _SMOOTHING) * self._times + _SMOOTHING * seconds
        mean = float(self._times.mean())
        if mean > 0:
            corrections = (mean / np.maximum(self._times, _LEAST_SHARE * mean)) ** self._exponent
            self._shares = self._within_limits(self._shares * corrections)

    def follow(self, departure: NDArray[np.int32]) -> None:
        """Takes in by how many samples an iteration departed from `current`, int32 [n], within the limits."""
        self._shares = self._within_limits(self._shares + _FOLLOWING * departure)

    @property
    def limits(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Least and most samples of each worker, int32 [n]."""
        return self._least.astype(np.int32), self._most.astype(np.int32)

    def current(self) -> tuple[int, ...]:
        """Returns the present m_j, [n]: the shares, rounded by largest remainder to whole numbers that sum to k."""
        whole = np.floor(self._shares).astype(np.int64)
        left = self._total - int(whole.sum())
        order = np.argsort(-(self._shares - whole), kind="stable")
        whole[order[:left]] += 1
        return tuple(whole.tolist())

    def _within_limits(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scales shares to the total and clips them, in turns; what clipping leaves over goes to those with room."""
        for _ in range(_ALTERNATIONS):
            shares = np.clip(shares * (self._total / shares.sum()), self._least, self._most)
        missing = self._total - shares.sum()
        room = self._most - shares if missing > 0 else shares - self._least
        if room.sum() > 0:
            shares = shares + missing * room / room.sum()
        return np.clip(shares, self._least, self._most)
