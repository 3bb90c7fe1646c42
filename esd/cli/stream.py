"""Cuts a data set into the batches of a run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from esd.cli.options import RunOptions
from services.data import Dataset
from services.domain.batches import SampleBatch
from services.domain.errors import InvalidArgument

_READ_SAMPLES = 1024


@dataclass(frozen=True, slots=True)
class TrainingStream:
    """The samples of one run, in training order.

    Attributes:
        dataset: where they come from.
        limit: how many of them are trained; None for all.
        batch_size: samples per iteration.
    """

    dataset: Dataset
    limit: int | None
    batch_size: int

    @property
    def iterations(self) -> int | None:
        """How many there will be, if that is known."""
        samples = self.dataset.samples if self.limit is None else self.limit
        return None if samples is None else -(-samples // self.batch_size)

    def __iter__(self) -> Iterator[SampleBatch]:
        """The samples, in batches as they are read."""
        return first_samples(self.dataset, self.limit)


def training_stream(chosen: RunOptions) -> TrainingStream:
    """Opens the samples that a run asks for. Raises InvalidArgument for a run without end."""
    dataset = chosen.open(_READ_SAMPLES)
    size = sum(chosen.worker_samples())
    limit = None if chosen.iterations is None else chosen.iterations * size
    if dataset.endless and limit is None:
        raise InvalidArgument(f"{chosen.data} is endless: give --iterations")
    return TrainingStream(dataset, limit, size)


def first_samples(batches: Iterable[SampleBatch], limit: int | None) -> Iterator[SampleBatch]:
    """The first `limit` samples, in batches as they come; all of them if there is no limit."""
    left = limit
    for batch in batches:
        if left is None:
            yield batch
            continue
        if left > 0:
            yield batch[:left]
            left -= len(batch)
        if left <= 0:
            return


def global_batches(batches: Iterable[SampleBatch], size: int) -> Iterator[SampleBatch]:
    """Batches of exactly `size` samples; the last may be short."""
    waiting: list[SampleBatch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += len(batch)
        while count >= size:
            joined = SampleBatch.concatenate(waiting)
            yield joined[:size]
            waiting = [joined[size:]]
            count -= size
    if count:
        yield SampleBatch.concatenate(waiting)


def without_first(batches: Iterable[SampleBatch], count: int) -> Iterator[SampleBatch]:
    """The samples after the first `count`, in batches as they come."""
    behind = count
    for batch in batches:
        if behind < len(batch):
            yield batch[behind:] if behind else batch
        behind = max(0, behind - len(batch))
