"""Held-out samples: the last ones of a data set, by their times or by their order.

By time, the cut is found in a few passes over the times alone, in constant memory.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from esd.data.dataset import Dataset
from esd.data.parts import Part
from esd.services.domain.errors import InvalidArgument

Times = Callable[[], Iterator[NDArray[np.int64]]]

_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
SECOND = 10**6  # times are in microseconds
TIME = "a time, such as 2026-11-20, 2026-11-20T08:30:00, or a number of seconds"  # what is expected of a column
_MICROSECONDS = {"s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND, "d": 86_400 * SECOND, "w": 7 * 86_400 * SECOND}
_BINS = 1 << 16  # of times, of which each pass finds the one with the cut


@dataclass(frozen=True, slots=True)
class Span:
    """A span of time: from `first` on and before `end`, in microseconds; None: without a bound."""

    first: int | None
    end: int | None

    def __str__(self) -> str:
        bounds = [f"from {self.first}"] if self.first is not None else []
        bounds += [f"before {self.end}"] if self.end is not None else []
        return f"times {' '.join(bounds)}"

    def holds(self, times: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Tells which times are in it, bool [n]."""
        held = np.ones(len(times), np.bool_)
        if self.first is not None:
            held &= times >= self.first
        if self.end is not None:
            held &= times < self.end
        return held


@runtime_checkable
class Timed(Protocol):
    """A data set whose samples have times."""

    @property
    def timed(self) -> bool:
        """Whether they have."""
        ...

    def times(self) -> Iterator[NDArray[np.int64]]:
        """Reads the times of all samples in their order, in microseconds since any point of time: int64 [n] each."""
        ...

    def between(self, first: int | None, end: int | None) -> Dataset:
        """Returns the data set of the samples whose time is at least `first` and before `end`, microseconds."""
        ...


def split(dataset: Dataset, last: str | float, said: str = "last={!r}") -> tuple[Dataset, Dataset]:
    """Returns the samples of a data set to train, and its last samples, to judge the model by.

    Args:
        dataset: all samples.
        last: a time, as `1d`, `12h`, `90m`: the samples of so much time before the latest one; or a share of the
            samples, 0..1. Of samples with times these are the latest, and samples of one time stay together: rather
            fewer are held out. Of others these are the last in order.

        said: how messages name `last`, by the caller's own word.

    Raises:
        InvalidArgument: `last` is neither, or needs times that the samples do not have; the number of samples is not
            known before they are read, and they have no times; one of the parts is empty.
    """
    named = said.format(last)
    duration, share = _read(last, named)
    if isinstance(dataset, Timed) and dataset.timed:
        extent = _extent(dataset.times)
        if not extent.count:
            raise InvalidArgument(f"{named} goes by the samples' times, and none of them has {TIME}")
        cut = _cut_of_share(dataset.times, extent, share) if duration is None else extent.latest - duration + 1
        if not extent.first < cut <= extent.latest:
            first, latest = (np.datetime64(each, "us") for each in (extent.first, extent.latest))
            raise InvalidArgument(
                f"{named} leaves no samples for one of the two parts: their times go from {first.astype('M8[s]')} to "
                f"{latest.astype('M8[s]')}"
            )
        return dataset.between(None, cut), dataset.between(cut, None)
    if duration is not None:
        raise InvalidArgument(
            f"{named} is a time, and the samples of {dataset.name} have none: name the column of their times "
            "as `time` in the schema, or give a share, such as 0.1"
        )
    return _by_order(dataset, share, named)


def _read(last: str | float, named: str) -> tuple[int | None, float]:
    """Returns a duration in microseconds and 0, or None and a share."""
    text = str(last).strip()
    match = _DURATION.fullmatch(text)
    if match is not None and float(match[1]) > 0:
        return round(float(match[1]) * _MICROSECONDS[match[2]]), 0.0
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 < share < 1:
        raise InvalidArgument(
            f"{named} is neither a share of the samples between 0 and 1 nor a time such as 1d, 12h or 90m"
        )
    return None, share


def _by_order(dataset: Dataset, share: float, named: str) -> tuple[Dataset, Dataset]:
    if dataset.samples is None:
        raise InvalidArgument(
            f"{named} needs to know how many samples there are, and {dataset.name} is read to its end to know: hold "
            "out another file, or a pattern of files (--evaluate)"
        )
    trained = dataset.samples - round(share * dataset.samples)
    if not 0 < trained < dataset.samples:
        raise InvalidArgument(f"{named} of {dataset.samples} samples leaves none for one of the two parts")
    return Part(dataset, 0, trained), Part(dataset, trained, dataset.samples)


@dataclass(frozen=True, slots=True)
class _Extent:
    """The first and the latest of some times, and how many there are; without any the first is after the latest."""

    first: int
    latest: int
    count: int


def _extent(times: Times) -> _Extent:
    first, latest, count = np.iinfo(np.int64).max, np.iinfo(np.int64).min, 0
    for each in times():
        if len(each):
            first, latest, count = min(first, int(each.min())), max(latest, int(each.max())), count + len(each)
    return _Extent(first, latest, count)


def _cut_of_share(times: Times, extent: _Extent, share: float) -> int:
    """Returns the first time at which no more than this share of the samples is as late or later."""
    room = round(share * extent.count)
    if extent.count <= room:
        return extent.first
    low, high, later = (
        extent.first,
        extent.latest + 1,
        0,
    )  # too many at `low` or later; at `high` or later so many that fit
    while high - low > 1:
        width = -(-(high - low) // _BINS)
        counts = np.zeros(_BINS, np.int64)
        for each in times():
            within = each[(each >= low) & (each < high)]
            counts += np.bincount((within - low) // width, minlength=_BINS)
        behind = np.append(later + np.cumsum(counts[::-1])[::-1], later)  # samples at a bin's begin or later
        fits = int(np.argmax(behind <= room))  # so the cut is in the bin before
        later = int(behind[fits])
        low, high = low + (fits - 1) * width, min(high, low + fits * width)
    return high
