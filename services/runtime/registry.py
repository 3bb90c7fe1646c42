"""The registry of all metrics, and the kind of metric that prometheus_client lacks."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Histogram

REGISTRY = CollectorRegistry()  # of all metrics, which are complete once metrics.py is imported


class CountedHistogram(Histogram):
    """A histogram that receives counts of values instead of single values."""

    def observe_all(self, counts: Sequence[int], total: float) -> None:
        """Adds `counts` to the buckets in order, the unlimited one last, and `total` to the sum of the values."""
        for bucket, count in zip(self._buckets, counts, strict=True):
            bucket.inc(count)
        self._sum.inc(total)
