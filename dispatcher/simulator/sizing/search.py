"""The search for the fastest sizes of batch and cache in a given memory: equations propose, simulations decide.

More samples per iteration share more rows, and leave less memory for cached rows (SCARS eq. 7). Between the two lies an
optimum, which eq. 8 to 13 find for one worker and random samples. Dispatch, stale copies and streams in order of time
shift it, so the search starts at the equations' optimum and simulates neighbours until none is better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from esd.services.domain.errors import ResourceExhausted

_SLOWER, _COSTLIER = 1.02, 1.05  # largest time and cost with a smaller cache, relative to the largest cache
_STEP = 1.25  # ratio of two cache sizes at which the bisection stops


@dataclass(frozen=True, slots=True)
class Trial:
    """The figures of a simulated run, after its warm-up.

    Attributes:
        batch: m, samples per worker and iteration.
        cache_rows: C, rows of each worker's cache.
        seconds: time per sample: the slowest worker's transfers and computation, and the sum of the dense gradients.
        least_seconds: the same if all rows moved while their workers compute.
        cost_seconds: cost per sample: the time of all its transfers on their links (ESD eq. 4).
        bytes: bytes moved per sample.
        hit_ratio: share of lookups that found the latest value in the worker's cache.
    """

    batch: int
    cache_rows: int
    seconds: float
    least_seconds: float
    cost_seconds: float
    bytes: float
    hit_ratio: float


class SizeSearch:
    """A search that keeps every trial, so that no sizes are simulated twice.

    Args:
        room: returns the number of rows that fit in addition to m samples, at most the rows of the stream.
        predicted: returns the seconds per sample by the equations, for m samples and C rows.
        simulate: makes a trial of m samples and C rows. It raises ResourceExhausted if the rows of an iteration do not
            fit the cache.

    Attributes:
        trials: the trials by m and C, in their order; None for a cache that is too small.
    """

    def __init__(
        self,
        room: Callable[[int], int],
        predicted: Callable[[int, int], float],
        simulate: Callable[[int, int], Trial],
    ) -> None:
        self._room = room
        self._predicted = predicted
        self._simulate = simulate
        self.trials: dict[tuple[int, int], Trial | None] = {}

    def run(self, batches: Sequence[int]) -> Trial:
        """Returns the best trial, with the smallest cache that is hardly worse than the largest one.

        Args:
            batches: the values of m to choose from, ascending.

        Raises:
            ResourceExhausted: no batch fits the memory together with the rows that it trains.
        """
        fitting = [batch for batch in batches if self._room(batch) > 0]
        at = min(range(len(fitting)), key=lambda i: self._predicted(fitting[i], self._room(fitting[i])), default=-1)
        best = self._largest(fitting[at]) if fitting else None
        while best is None and at > 0:  # fewer samples need fewer rows
            at -= 1
            best = self._largest(fitting[at])
        if best is None:
            raise ResourceExhausted(
                f"{batches[0]} samples per worker do not fit the memory together with the rows that they train: give "
                "workers more memory (--memory), or a smaller --batch"
            )
        for step in (-1, 1):
            while 0 <= at + step < len(fitting):
                neighbour = self._largest(fitting[at + step])
                if neighbour is None or neighbour.seconds >= best.seconds:
                    break
                best, at = neighbour, at + step
        return self._smallest(best)

    def _largest(self, batch: int) -> Trial | None:
        return self.trial(batch, self._room(batch))

    def _smallest(self, best: Trial) -> Trial:
        """Returns the trial with the fewest rows that is hardly worse than `best`, by bisection."""
        low, enough = 1.0, best
        while enough.cache_rows > _STEP * low:
            middle = max(int(low) + 1, round((low * enough.cache_rows) ** 0.5))
            tried = self.trial(best.batch, middle)
            if tried is not None and _as_good(tried, best):
                enough = tried
            else:
                low = middle
        return enough

    def trial(self, batch: int, cache_rows: int) -> Trial | None:
        """Returns a trial, simulated at the first request; None if a cache of that size cannot train the batch."""
        key = batch, cache_rows
        if key not in self.trials:
            try:
                self.trials[key] = self._simulate(batch, cache_rows)
            except ResourceExhausted:
                self.trials[key] = None
        return self.trials[key]


def _as_good(smaller: Trial, largest: Trial) -> bool:
    """Returns whether time and cost are hardly worse with the smaller cache.

    Time alone is not enough: computation may hide the transfers of a smaller cache, until the links carry other
        traffic.
    """
    return smaller.seconds <= _SLOWER * largest.seconds and smaller.cost_seconds <= _COSTLIER * largest.cost_seconds
