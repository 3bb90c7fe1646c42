"""The next item that a visitor of a shop looks at: Alibaba's User Behavior Data from Taobao; label: this item or not.

The file, `UserBehavior.csv`, has a line for each thing that a user did, all lines of a user together: user, item,
category, behaviour (`pv`: looked at the item, `cart`, `fav`, `buy`) and seconds since 1970, without a header.

TBSM (Ishkhanov et al., 2020) is trained on it with a history of 20 items. A view makes two samples: the item that the
user looked at, and another one, both with the latest items that the user had looked at before, and their categories.
Other behaviours are left out: they follow a view of the same item, so that the history would tell the label.

The other item was looked at by another user: it is a draw from the `_OTHERS` views before the user's. So the
more an item is looked at, the oftener it is drawn, and popularity alone tells nothing. It is a function of the view's
place in the data alone, so every run and every pass has the same samples. No user is before the first one, whose views
make one sample each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from esd.data.dataset import columns_of
from esd.data.hashing import READER_VERSION, field_key, hash_bytes
from esd.data.reader import ReadRequest
from esd.data.records import Column, Kind, Records, TextFormat
from esd.data.split import SECOND, Span
from esd.data.text_dataset import TextFiles
from esd.native import text as native
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import Feature, Pooling
from esd.services.domain.ids import in_table, sequence

_FORMAT = TextFormat(
    columns=(
        Column("user", Kind.ID),
        Column("item", Kind.ID),
        Column("category", Kind.ID),
        Column("behaviour", Kind.ID),
        Column("timestamp", Kind.INTEGER),
    ),
    delimiter=",",
)
_USER, _ITEM, _CATEGORY = range(3)  # the numbers of their tables
_VIEWED = np.uint64(hash_bytes(field_key("behaviour"), b"pv"))
_HISTORY = 20  # items
_OTHERS = 1 << 16  # views
_MOST_VIEWS = 1 << 20  # of one user, which are held in memory
_AT_ONCE = 4096  # views that samples are made of
_DRAWS = np.uint64(field_key("taobao: another item"))


@dataclass(frozen=True, slots=True)
class _Views:
    """n views: ids of users, items and categories, uint64 [n] each, and times, seconds since 1970, int64 [n]."""

    users: NDArray[np.uint64]
    items: NDArray[np.uint64]
    categories: NDArray[np.uint64]
    times: NDArray[np.int64]

    @classmethod
    def of(cls, records: Records) -> Self:
        """Returns the views among records of any behaviour."""
        views = records.ids[:, 3] == _VIEWED
        users, items, categories = (
            in_table(records.ids[views, number], number) for number in (_USER, _ITEM, _CATEGORY)
        )
        return cls(users, items, categories, records.numbers[views, 0].astype(np.int64))

    def __len__(self) -> int:
        return len(self.users)

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> Self:
        return type(self)(self.users[rows], self.items[rows], self.categories[rows], self.times[rows])

    def followed_by(self, others: Self) -> Self:
        """Returns these and others behind them."""
        return type(self)(
            np.concatenate((self.users, others.users)),
            np.concatenate((self.items, others.items)),
            np.concatenate((self.categories, others.categories)),
            np.concatenate((self.times, others.times)),
        )

    @property
    def begins(self) -> NDArray[np.int64]:
        """Where each user's views begin, int64 [users]."""
        return np.flatnonzero(np.diff(self.users, prepend=~self.users[:1]))


class TaobaoDataset:
    """A `Dataset` over files of user behaviour, in the order of the users, and of each in the order of time.

    Raises:
        InvalidArgument: a file does not exist, is empty or of another format.
    """

    name = "taobao"
    features = (
        Feature("user", _USER),
        Feature("item", _ITEM),
        Feature("category", _CATEGORY),
        Feature("items before", _ITEM, Pooling.LIST, _HISTORY),
        Feature("categories before", _CATEGORY, Pooling.LIST, _HISTORY),
    )
    labels = ("label",)
    dense_features = ()
    endless = False
    samples: int | None = None
    timed = True

    def __init__(self, request: ReadRequest) -> None:
        self._files = TextFiles(_FORMAT, request.files(), request.skip_bad)
        self._batch_size = request.batch_size
        self._span: Span | None = None

    @property
    def skipped(self) -> int:
        """How many malformed records the latest iteration has skipped so far."""
        return self._files.skipped

    @property
    def fingerprint(self) -> str:
        """Names the reader, the content of the files in their order, and the span of time."""
        name = f"{self.name} ({self._files.content}, reader {READER_VERSION})"
        return name if self._span is None else f"{name}; {self._span}"

    def times(self) -> Iterator[NDArray[np.int64]]:
        """See esd.data.split.Timed; a time for each view."""
        for records in self._files.records():
            yield _Views.of(records).times * SECOND

    def between(self, first: int | None, end: int | None) -> Self:
        """See esd.data.split.Timed. Histories and other items may be older."""
        part = copy(self)
        part._files = copy(self._files)  # noqa: SLF001 - of the same class
        part._span = Span(first, end)  # noqa: SLF001
        return part

    def __iter__(self) -> Iterator[SampleBatch]:
        before = _Views.of(Records(np.zeros((0, 4), np.uint64), np.zeros((0, 1))))
        columns = columns_of(self)
        position = 0  # of the first view that is behind `before`, among all views
        users = native.DistinctIds()
        for views in _of_whole_users(map(_Views.of, self._files.records())):
            self._check_together(users, views, position)
            known = before.followed_by(views)
            for batch in self._samples(known, len(before), position):
                named = batch.named(columns)
                for start in range(0, len(named), self._batch_size):
                    yield named[start : start + self._batch_size]
            position += len(views)
            before = known[-_OTHERS:]
        if not position:
            raise InvalidArgument(f"data file {self._files} has no line with the behaviour pv")

    def _check_together(self, users: native.DistinctIds, views: _Views, position: int) -> None:
        """Refuses a user whose lines stand apart: the history of each view would be cut where they begin again."""
        beginning = views.users[views.begins]
        known = len(users)
        users.add(beginning)
        if len(users) < known + len(beginning):
            raise InvalidArgument(
                f"{self._files}: a user returns among the views {position + 1:,} to {position + len(views):,}, after "
                "views of others; the lines of a user must stand together: sort the file by user"
            )

    def _samples(self, known: _Views, first: int, position: int) -> Iterator[SampleBatch]:
        """Makes samples of the known views from `first` on, which has this position among all views."""
        begins = known.begins
        of_user = begins[np.searchsorted(begins, np.arange(len(known)), side="right") - 1]
        for start in range(first, len(known), _AT_ONCE):
            rows = np.arange(start, min(start + _AT_ONCE, len(known)))
            others = np.minimum(of_user[rows] - first + position, _OTHERS)
            bits = sequence(_DRAWS, position + start - first, len(rows))
            drawn = of_user[rows] - 1 - (bits % np.maximum(others, 1).astype(np.uint64)).astype(np.int64)
            views, items = np.repeat(rows, 2), np.column_stack((rows, drawn)).reshape(-1)
            kept = np.column_stack((np.ones(len(rows), np.bool_), others > 0)).reshape(-1)
            if self._span is not None:
                kept &= np.repeat(self._span.holds(known.times[rows] * SECOND), 2)
            if kept.any():
                yield _made(known, views[kept], items[kept], of_user)


def _of_whole_users(parts: Iterable[_Views]) -> Iterator[_Views]:
    """Yields views such that no user's go on in the next ones, each user's in the order of time."""
    rest: _Views | None = None
    for part in parts:
        rest = part if rest is None else rest.followed_by(part)
        begins = rest.begins
        if len(begins) > 1:
            yield _in_time_order(rest[: begins[-1]])
            rest = rest[begins[-1] :]
        if len(rest) > _MOST_VIEWS:
            raise InvalidArgument(f"a user has more than {_MOST_VIEWS:,} views: the lines of a user stand together")
    if rest is not None and len(rest):
        yield _in_time_order(rest)


def _in_time_order(views: _Views) -> _Views:
    user = np.zeros(len(views), np.int64)
    user[views.begins] = 1
    return views[np.lexsort((views.times, np.cumsum(user)))]


def _made(known: _Views, views: NDArray[np.int64], items: NDArray[np.int64], of_user: NDArray[np.int64]) -> SampleBatch:
    """Makes k samples: of these views, with the item of these; `of_user` tells where the views of their user begin."""
    lengths = np.minimum(views - of_user[views], _HISTORY)
    counts = 3 + 2 * lengths
    begins = np.cumsum(counts) - counts
    ids = np.empty(int(counts.sum()), np.uint64)
    ids[begins + _USER] = known.users[views]
    ids[begins + _ITEM] = known.items[items]
    ids[begins + _CATEGORY] = known.categories[items]
    within = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    seen = np.repeat(views - lengths, lengths) + within
    ids[np.repeat(begins + 3, lengths) + within] = known.items[seen]
    ids[np.repeat(begins + 3 + lengths, lengths) + within] = known.categories[seen]
    one = np.ones(len(views), np.int64)
    return SampleBatch(
        ids,
        np.empty((len(views), 0), np.float32),
        (items == views).astype(np.float32).reshape(-1, 1),
        np.column_stack((one, one, one, lengths, lengths)).astype(np.uint32),
        groups=known.users[views],
    )
