"""The sample stream of a simulation: from a data set or from a trace of ids."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dispatcher.simulator.simulate import trace_batches
from esd.cli import options as opt
from esd.cli.stream import global_batches, training_stream
from services.domain.batches import SampleBatch


@dataclass(frozen=True, slots=True)
class SimulatedStream:
    """A stream that can be read more than once.

    Attributes:
        fields: names of the F fields; those of a trace are numbers, 0 to F - 1.
        dense_features: d.
        cache_rows: of each worker, as the options say.
        batches: reads the global batches from the start.
    """

    fields: tuple[str, ...]
    dense_features: int
    cache_rows: int
    batches: Callable[[], Iterator[SampleBatch]]

    def profile(self) -> NDArray[np.uint64]:
        """All ids of the stream, as columns."""
        return np.concatenate([batch.ids.reshape(-1) for batch in self.batches()])


def open_stream(chosen: opt.RunOptions, trace: NDArray[np.uint64] | None) -> SimulatedStream:
    """The stream that the options describe, of the trace if there is one."""
    if trace is not None:
        size = sum(chosen.worker_samples())
        limit = None if chosen.iterations is None else chosen.iterations * size
        cache = chosen.cache_rows or _share(chosen.cache_ratio, trace)
        names = tuple(map(str, range(trace.shape[1])))
        return SimulatedStream(names, 0, cache, lambda: trace_batches(trace[:limit], size))
    stream = training_stream(chosen)
    return SimulatedStream(
        fields=stream.dataset.fields,
        dense_features=len(stream.dataset.dense_features),
        cache_rows=chosen.cache_size(stream.dataset),
        batches=lambda: global_batches(stream, stream.batch_size),
    )


def _share(ratio: float | None, trace: NDArray[np.uint64]) -> int:
    distinct = len(np.unique(trace))
    return max(1, round((opt.DEFAULT_CACHE_RATIO if ratio is None else ratio) * distinct))
