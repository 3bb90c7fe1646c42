"""Data sets that can be opened at a position, and not only at their beginning."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import FailedPrecondition, InvalidArgument
from esd.services.domain.sources import SourcePosition


@runtime_checkable
class Positioned(Protocol):
    """A data set whose batches carry their places in the source (`SampleBatch.source`), and that opens there again."""

    def open(self, place: SourcePosition | None = None) -> Iterator[SampleBatch]:
        """Yields the samples from a place on, in batches with their places.

        Args:
            place: of the first sample, as a batch of an equal data set had it; None: the beginning.

        Raises:
            InvalidArgument: no such data set has written the place.
            FailedPrecondition: the source no longer has the samples from there on.
        """
        ...


@runtime_checkable
class ReadsOn(Protocol):
    """A data set over a log, which a later run may read on where an earlier one ended."""

    def check_reads_on(self, fingerprint: str) -> None:
        """Refuses to go on at a position of another log.

        Args:
            fingerprint: of the data set that was read up to the position.

        Raises:
            InvalidArgument: the address says another beginning.
            FailedPrecondition: the data set was of another log.
        """
        ...


def forgets(dataset: object) -> bool:
    """Tells whether a data set may lose its beginning while it is read, by an attribute `forgets`."""
    return bool(getattr(dataset, "forgets", False))


def behind(batches: Iterator[SampleBatch], place: SourcePosition) -> Iterator[SampleBatch]:
    """Leaves out the samples between a position and a place behind it.

    Raises:
        FailedPrecondition: there are not so many.
    """
    left = place.behind
    for batch in batches:
        if left < len(batch):
            yield batch[left:] if left else batch
        left = max(0, left - len(batch))
    if left:
        raise FailedPrecondition(f"the source ends {left:,} samples before {place}: it has lost samples since")


def numbers_of(position: str, count: int) -> list[int]:
    """Reads a position of whole numbers, `3:1200:0`.

    Raises:
        InvalidArgument: it is none.
    """
    parts = position.split(":")
    if len(parts) != count or not all(part.isdecimal() for part in parts):
        raise InvalidArgument(f"position {position[:80]!r} was written by another kind of source")
    return [int(part) for part in parts]
