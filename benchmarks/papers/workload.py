"""Sample streams as traces of ids."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from esd.data import open_data
from esd.dispatcher.simulator.simulate import trace_batches
from esd.run.stream import first_samples
from esd.services.domain.batches import SampleBatch
from esd.services.domain.ids import distinct_values


@dataclass(frozen=True)
class Workload:
    """The first samples of a data set.

    Attributes:
        name: of the data set, without its path.
        trace: uint64 [N, F].
    """

    name: str
    trace: NDArray[np.uint64]

    @classmethod
    def load(cls, uri: str, samples: int) -> Workload:
        """Reads up to `samples` samples of `flights`, `synthetic:criteo`, `criteo:PATH`, ..."""
        batches = first_samples(open_data(uri, 4096, seed=0), samples)
        name = uri.partition("?")[0] if uri.startswith("synthetic") else uri.partition(":")[0]
        return cls(name, np.concatenate([batch.by_field for batch in batches]))

    @cached_property
    def rows(self) -> int:
        """Distinct ids of the trace; cache ratios are shares of it."""
        return len(distinct_values(self.trace))

    @property
    def fields(self) -> int:
        """The number of fields of a sample, F."""
        return int(self.trace.shape[1])

    def batches(self, size: int, count: int) -> Iterator[SampleBatch]:
        """Yields the first `count` whole batches of `size` samples; fewer if the trace is shorter."""
        whole = min(count, len(self.trace) // size)
        return trace_batches(self.trace[: whole * size], size)
