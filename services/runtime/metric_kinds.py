"""Kinds of metrics that cost an event loop little: what takes time is done when somebody looks."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from threading import Lock

from prometheus_client import Counter, Histogram
from prometheus_client.samples import Sample

_MOST_WAITING = 1024  # values of a histogram


class LazyHistogram(Histogram):
    """A histogram that puts values into its buckets when somebody looks, or when many wait, since that takes longer."""

    def _metric_init(self) -> None:
        super()._metric_init()
        self._waiting: list[float] = []
        self._counting = Lock()  # who looks is another thread

    def observe(self, amount: float) -> None:  # type: ignore[override]  # without exemplars
        """Takes a value."""
        self._waiting.append(amount)
        if len(self._waiting) >= _MOST_WAITING:
            self._count()

    def observe_all(self, counts: Mapping[int, int], total: float) -> None:
        """Adds values that are counted already: how many to each bucket, by its number, and their sum."""
        for bucket, count in counts.items():
            self._buckets[bucket].inc(count)
        self._sum.inc(total)

    def _count(self) -> None:
        with self._counting:
            values = self._waiting.copy()
            del self._waiting[: len(values)]  # and not what has come since
            self.observe_all(Tally(bisect_left(self._upper_bounds, value) for value in values), sum(values))

    def _child_samples(self) -> Iterable[Sample]:
        self._count()
        return super()._child_samples()


class LoopCounter(Counter):
    """A counter that the event loop alone adds to, and so without a lock, which takes longer than the addition."""

    def _metric_init(self) -> None:
        super()._metric_init()
        self._added = 0.0

    def inc(self, amount: float = 1) -> None:  # type: ignore[override]  # without exemplars
        """Adds what is not negative."""
        self._added += amount

    def _child_samples(self) -> Iterable[Sample]:
        self._value.set(self._added)
        return super()._child_samples()
