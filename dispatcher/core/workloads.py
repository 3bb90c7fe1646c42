"""Workloads with which all workers need the same time, so that no worker waits for the slowest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.learned import Arrays
from esd.services.domain.errors import InvalidArgument

# A worker's time grows with about this power of its number of samples, since more samples share more rows.
_ELASTICITY = 0.8
_SMOOTHING = 0.2  # least weight of the newest iteration in a worker's pace
_LARGEST_STEP = 2.0  # largest factor by which one refinement changes a workload
_ALTERNATIONS = 20
_HALVINGS = 50  # of the span in which the common time of all workers lies
_LEAST_SHARE = 1e-3  # shortest time of a worker that counts, relative to the mean, since shares divide by times


class BalancedWorkloads:
    """Finds workloads m_j, within limits, for which all workers need the same time.

    Worker j has a pace p_j: it needs the time p_j m^0.8 for m samples. The expected time of an iteration is known when
        it is planned, and yields the paces. Paces are smoothed, over all iterations at first and then with weight 0.2
        for the newest. Equal times under these paces require workloads proportional to p_j^(-1/0.8). They depend on the
        paces and not on earlier workloads, so they are right as soon as the paces are, and do not oscillate. A worker
        whose time has a fixed part, which no workload changes, gets a workload that fills the rest of the common time.
    """

    def __init__(
        self, batch_size: int, least: Sequence[int], most: Sequence[int], seconds: NDArray[np.float64]
    ) -> None:
        """Starts from expected times.

        Args:
            batch_size: k, the sum of the workloads.
            least: lower limits, [n].
            most: upper limits, [n].
            seconds: each worker's expected time for k / n samples, float64 [n].

        Raises:
            InvalidArgument: a lower limit exceeds its upper limit, or no workloads within the limits sum to k.
        """
        for worker, (low, high) in enumerate(zip(least, most, strict=True)):
            if not 0 <= low <= high:
                raise InvalidArgument(f"the workload of worker {worker} has the limits {low}..{high}")
        if not sum(least) <= batch_size <= sum(most):
            raise InvalidArgument(
                f"the limits of the workloads sum to {sum(least)}..{sum(most)}, and a batch has {batch_size} samples:"
                " change --workload-limits, or the limits of the workers"
            )
        self._total = batch_size
        self.least = np.asarray(least, np.float64)
        self.most = np.asarray(most, np.float64)
        self._paces = _log_pace(seconds, np.full(len(least), batch_size / len(least)))
        self._iterations = 0

    def update(self, seconds: NDArray[np.float64], workloads: NDArray[np.int32]) -> None:
        """Learns from an iteration: each worker's time without waits, float64 [n], for m_j samples, int32 [n]."""
        seen = workloads > 0
        if seconds.max() <= 0:
            return
        self._iterations += 1
        weight = max(1 / self._iterations, _SMOOTHING)
        off = _log_pace(seconds, np.maximum(workloads, 1).astype(np.float64)) - self._paces
        self._paces[seen] += weight * off[seen]

    @property
    def sample_seconds(self) -> NDArray[np.float64]:
        """The time that each worker needs for an iteration with one sample, float64 [n]."""
        return np.exp(self._paces)

    def forget(self) -> None:
        """Makes the next iteration replace all knowledge, as if it were the first."""
        self._iterations = 0

    def save(self) -> dict[str, NDArray[Any]]:
        """Returns the paces, for `load`."""
        return {"paces": self._paces, "iterations": np.array(self._iterations)}

    def load(self, saved: Arrays) -> None:
        """Restores saved paces."""
        self._paces = saved["paces"]
        self._iterations = int(saved["iterations"])

    def current(
        self, most: NDArray[np.float64] | None = None, fixed: NDArray[np.float64] | None = None
    ) -> NDArray[np.int32]:
        """Returns the present m_j, int32 [n].

        Args:
            most: upper limits in place of the constructor's, float64 [n], with a sum of at least k.
            fixed: the part of each worker's time that no workload changes, float64 [n] seconds; None: none.
        """
        if fixed is None or fixed.max() == fixed.min():
            return self._whole(np.exp((self._paces.min() - self._paces) / _ELASTICITY), most)
        limits = self.most if most is None else most
        return self._whole(self._filling(fixed, limits), limits)

    def refine(
        self,
        workloads: NDArray[np.int32],
        seconds: NDArray[np.float64],
        most: NDArray[np.float64],
        fixed: NDArray[np.float64] | None = None,
    ) -> NDArray[np.int32]:
        """Returns workloads, int32 [n], that make the workers' times more equal.

        Args:
            workloads: int32 [n], the workloads of one assignment.
            seconds: float64 [n], the workers' times under this assignment.
            most: float64 [n], upper limits, with a sum of at least k.
            fixed: float64 [n], the part of these times that no workload changes; None: none.
        """
        fixed = np.zeros_like(seconds) if fixed is None else fixed
        positive = _positive(seconds - fixed)
        wanted = np.maximum(float(np.mean(positive + fixed)) - fixed, _LEAST_SHARE * positive)
        factors = (wanted / positive) ** (1 / _ELASTICITY)
        return self._whole(np.maximum(workloads, 0.5) * np.clip(factors, 1 / _LARGEST_STEP, _LARGEST_STEP), most)

    def _filling(self, fixed: NDArray[np.float64], most: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the workloads, float64 [n], that end all workers at the earliest common time, within the limits."""

        def filled(end: float) -> NDArray[np.float64]:
            free = np.maximum(end - fixed, 0.0)
            samples: NDArray[np.float64] = np.clip((free / np.exp(self._paces)) ** (1 / _ELASTICITY), self.least, most)
            return samples

        early, late = 0.0, float((fixed + np.exp(self._paces) * self._total**_ELASTICITY).max())
        for _ in range(_HALVINGS):
            middle = (early + late) / 2
            early, late = (early, middle) if filled(middle).sum() >= self._total else (middle, late)
        return np.maximum(filled(late), _LEAST_SHARE)

    def _whole(self, shares: NDArray[np.float64], most: NDArray[np.float64] | None) -> NDArray[np.int32]:
        """Scales shares to k within the limits and rounds them by largest remainder."""
        shares = self._within_limits(shares, self.most if most is None else most)
        whole = np.floor(shares + 1e-9).astype(np.int32)
        left = self._total - int(whole.sum())
        whole[np.argsort(whole - shares, kind="stable")[:left]] += 1
        return whole

    def _within_limits(self, shares: NDArray[np.float64], most: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scales shares to the total and clips them, in turns; workers with room get the remainder after clipping."""
        for _ in range(_ALTERNATIONS):
            shares = np.clip(shares * (self._total / shares.sum()), self.least, most)
        missing = self._total - shares.sum()
        room = most - shares if missing > 0 else shares - self.least
        if room.sum() > 0:
            shares = shares + missing * room / room.sum()
        return np.clip(shares, self.least, most)


def _positive(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.maximum(seconds, max(_LEAST_SHARE * float(seconds.mean()), 1e-12))


def _log_pace(seconds: NDArray[np.float64], workloads: NDArray[np.float64]) -> NDArray[np.float64]:
    paces: NDArray[np.float64] = np.log(_positive(seconds)) - _ELASTICITY * np.log(workloads)
    return paces
