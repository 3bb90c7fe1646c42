"""Hot and normal mini-batches (SCARS §III): samples that need replicated rows alone are trained together.

Nothing of such a batch moves over a link to a parameter server, and the transfers of others end while it trains. The
samples of each batch change, and so does the trained model; that every sample is trained once does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from esd.data.dataset import Dataset
from esd.data.derived import DerivedDataset
from esd.native import engine as native
from esd.native.engines import engine_of
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class ReplicatedRows:
    """Which rows a job replicates, as its dispatcher has it: a function of this and of the batches before.

    Attributes:
        room: their share of a cache, in units of row size.
        table_sizes: size of each table's rows in units, [T]; empty when there is one table.
        workers: how many replicate them.
        seed: of the job.
    """

    room: int
    table_sizes: tuple[int, ...]
    workers: int
    seed: int


class HotBatches(DerivedDataset):
    """A `Dataset` of all samples of another one, in whole global batches: of hot samples alone, or of others.

    A sample is hot if every row that it needs is replicated when its batch is trained. Fewer than two batches of
    samples wait for others of their kind, so a sample comes less than two batches earlier than it stands, and at most
    `patience` + 2 batches later. Those that are left at the end come in order.

    Which samples are hot follows from the stream alone, so every reader reads the same. Where the dispatcher
    has replicated other rows (in the first periods of a run that goes on from another one's model, behind a worker's
    loss, or where rows are forgotten), a hot batch moves those that it lacks.

    Args:
        dataset: the samples, all epochs of them.
        batch_size: k, samples of a global batch.
        patience: batches that a sample waits for others of its kind, at least 1; then the next batch is of those that
            have waited longest, of either kind.
        rows: the replicated rows.

    Attributes:
        hot_batches: how many of the batches that the latest iteration has yielded were hot.
    """

    def __init__(self, dataset: Dataset, *, batch_size: int, patience: int, rows: ReplicatedRows) -> None:
        if batch_size < 1 or patience < 1:
            raise InvalidArgument(f"batch_size is {batch_size} and patience {patience}; both must be at least 1")
        super().__init__(dataset)
        self._size = batch_size
        self._patience = patience
        self._rows = rows
        self.hot_batches = 0

    @property
    def fingerprint(self) -> str:
        """Names the data set, and the options of the batches."""
        rows = self._rows
        sizes = f" of sizes {','.join(map(str, rows.table_sizes))}" if rows.table_sizes else ""
        batches = f"hot and normal batches of {self._size}, for which samples wait for {self._patience}"
        replicated = f"{rows.room}{sizes} that {rows.workers} workers replicate by seed {rows.seed}"
        return f"{self._source.fingerprint}; in {batches}, by rows for {replicated}"

    def __iter__(self) -> Iterator[SampleBatch]:
        """Yields batches of `batch_size` samples; the last one may be shorter."""
        rows = self._rows
        forecast = engine_of(rows.workers).HotSamples(rows.table_sizes, rows.room, rows.workers, rows.seed)
        waiting = _Waiting(self._size, self._patience)
        self.hot_batches = 0
        for batch in self._source:
            rest = batch
            while len(rest):
                hot = forecast.judge(*rest[: self._size].id_columns)
                rest = rest[waiting.add(rest, hot) :]
                while (full := waiting.take()) is not None:  # none, mostly
                    self.hot_batches += full.hot
                    if forecast.train(*full.samples.id_columns):
                        waiting.judge(forecast)
                    yield full.samples
        yield from waiting.rest()


@dataclass(frozen=True, slots=True)
class _Full:
    """A batch, and whether its samples are all hot."""

    samples: SampleBatch
    hot: bool


class _Waiting:
    """Samples that wait for others of their kind, in the order of the stream: fewer than `size` of each kind."""

    def __init__(self, size: int, patience: int) -> None:
        self._size = size
        self._patience = patience
        self._samples: list[SampleBatch] = []
        self._hot = np.zeros(0, np.bool_)
        self._since = np.zeros(0, np.int64)  # the batches that had been made when each sample came
        self._made = 0

    def add(self, samples: SampleBatch, hot: NDArray[np.bool_]) -> int:
        """Takes the first of some samples in, as many as it takes to fill a batch; `hot` tells of these, and of more.

        Returns:
            How many.
        """
        kinds = np.cumsum(hot) + np.count_nonzero(self._hot), np.cumsum(~hot) + np.count_nonzero(~self._hot)
        filled = kinds[0] + kinds[1] if self._mixing else np.maximum(*kinds)
        taken = min(len(hot), int(np.searchsorted(filled, self._size)) + 1)
        self._samples.append(samples[:taken])
        self._hot = np.concatenate([self._hot, hot[:taken]])
        self._since = np.concatenate([self._since, np.full(taken, self._made)])
        return taken

    def take(self) -> _Full | None:
        """Takes a batch out, the longest waiting samples of a kind; None if there are not enough of any."""
        if self._mixing:
            chosen, hot = np.arange(len(self._hot)), False
        else:
            hot = bool(np.count_nonzero(self._hot) >= self._size)
            chosen = np.flatnonzero(self._hot == hot)
        if len(chosen) < self._size:
            return None
        chosen = chosen[: self._size]
        joined = SampleBatch.concatenate(self._samples)
        left = np.delete(np.arange(len(joined)), chosen)
        self._samples, self._hot, self._since = [joined[left]], self._hot[left], self._since[left]
        self._made += 1
        return _Full(joined[chosen], hot)

    def judge(self, forecast: native.HotSamples) -> None:
        """Tells anew which samples are hot, when other rows are replicated than before."""
        self._hot = np.concatenate([forecast.judge(*part.id_columns) for part in self._samples])

    def rest(self) -> Iterator[SampleBatch]:
        """Yields the remaining samples, in order and in batches."""
        for start in range(0, len(self._hot), self._size):
            yield SampleBatch.concatenate(self._samples)[start : start + self._size]

    @property
    def _mixing(self) -> bool:
        """Whether the first sample has waited so long that kinds count no more."""
        return bool(len(self._since)) and self._made - int(self._since[0]) >= self._patience
