"""Finds the batch and the cache that train fastest in a given memory: equations begin, simulations decide.

More samples per iteration share more rows, and leave less memory for cached ones (SCARS eq. 7). Between the two lies an
optimum, which eq. 8 to 13 find for one worker and random samples. Dispatch, stale copies and streams in order of time
move it, so the search simulates neighbours until none is better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from esd.services.domain.errors import ResourceExhausted

_SLOWER, _COSTLIER = 1.02, 1.05  # what a smaller cache may take and move, relative to the largest one
_STEP = 1.25  # by which sizes of a cache differ that are told apart


@dataclass(frozen=True, slots=True)
class Trial:
    """What a simulated run took after its warm-up.

    Attributes:
        batch: m, samples per worker and iteration.
        cache_rows: C, of each worker.
        seconds: of a sample: the slowest worker's transfers and computation, and the sum of the dense gradients.
        cost_seconds: of a sample: the time of all its transfers on their links (ESD eq. 4).
        bytes: that a sample moves.
        hit_ratio: lookups that found the latest value in the worker's cache.
    """

    batch: int
    cache_rows: int
    seconds: float
    cost_seconds: float
    bytes: float
    hit_ratio: float


class SizeSearch:
    """Searches once; keeps every trial, so that nothing is simulated twice.

    Args:
        room: how many rows fit beside m samples; no more than the stream has.
        predicted: the seconds of a sample by the equations, of m samples and C rows.
        simulate: makes a trial of m samples and C rows. Raises ResourceExhausted when the rows of an iteration do not
            fit the cache.

    Attributes:
        trials: by m and C, in the order in which they were made.
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
        """Returns the best of the batches, ascending, with the fewest cached rows that are as good as all that fit.

        Raises:
            ResourceExhausted: no batch fits with the rows that it trains.
        """
        fitting = [batch for batch in batches if self._room(batch) > 0]
        at = min(range(len(fitting)), key=lambda i: self._predicted(fitting[i], self._room(fitting[i])), default=-1)
        best = self._largest(fitting[at]) if fitting else None
        while best is None and at > 0:  # fewer samples need fewer rows
            at -= 1
            best = self._largest(fitting[at])
        if best is None:
            raise ResourceExhausted(
                f"not even {batches[0]} samples per worker fit with the rows that they train: give workers more memory"
                " (--memory), or a smaller --batch"
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
        """Returns the trial with the fewest rows that takes hardly longer, by bisection."""
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
        """Simulates, or recalls; None where a cache of that size cannot train the batch."""
        key = batch, cache_rows
        if key not in self.trials:
            try:
                self.trials[key] = self._simulate(batch, cache_rows)
            except ResourceExhausted:
                self.trials[key] = None
        return self.trials[key]


def _as_good(smaller: Trial, largest: Trial) -> bool:
    """Both count: computation may hide what a smaller cache moves, until links are shared with others."""
    return smaller.seconds <= _SLOWER * largest.seconds and smaller.cost_seconds <= _COSTLIER * largest.cost_seconds
