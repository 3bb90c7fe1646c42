"""The samples of `--data journey`, against the tables that they are made of."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest

from esd.data import open_data
from esd.data.hashing import derived_ids, field_key, hash_bytes
from esd.data.readers.journey import JourneyDataset
from esd.data.readers.journey_tables import package_data
from esd.data.tables.columns import hashed
from esd.services.domain.batches import SampleBatch
from esd.services.domain.ids import distinct_values

CHECKED = 20


def names(dataset: JourneyDataset) -> list[str]:
    return [feature.name for feature in dataset.features]


@pytest.fixture(scope="module")
def dataset() -> JourneyDataset:
    opened = open_data("journey", 50_000, seed=0)
    assert isinstance(opened, JourneyDataset)
    return opened


@pytest.fixture(scope="module")
def journey(dataset: JourneyDataset) -> SampleBatch:
    samples = SampleBatch.concatenate(list(dataset))
    samples.check_numbers()
    samples.check_shape(dataset.features, len(dataset.dense_features), len(dataset.labels))
    return samples


def test_size(dataset: JourneyDataset, journey: SampleBatch) -> None:
    assert dataset.samples == len(journey) == 2_221_464
    assert journey.labels.sum() == 327_041
    columns = zip(names(dataset), journey.by_field.T, strict=True)
    distinct = {name: len(distinct_values(column)) for name, column in columns}
    assert distinct["store"] == 112
    assert distinct["household"] == 2_450
    assert distinct["household x product"] == 2_008_707
    assert sum(distinct.values()) == 4_137_036


def test_samples_are_what_the_tables_say(dataset: JourneyDataset, journey: SampleBatch) -> None:
    """Purchases of the whole year.

    A sample with e earlier purchases belongs to trip number e + 1 on which the household bought the product; it has the
    place and the history of that trip.
    """
    bought = {name: column.to_numpy() for name, column in columns("transactions").items()}
    promoted = pyarrow.parquet.read_table(package_data() / "promotions.parquet")
    at = {name: position for position, name in enumerate(names(dataset))}

    def ids(field: str, values: np.ndarray) -> np.ndarray:
        return hashed(pa.array(values), field_key(field))

    household, product = ids("household", bought["household_id"]), ids("product", bought["product_id"])
    checked = np.random.default_rng(0).choice(np.flatnonzero(journey.labels[:, 0] == 1), CHECKED)
    about = np.isin(product, journey.by_field[checked, at["product"]])
    promoted = promoted.filter(pc.is_in(promoted["product_id"], pa.array(np.unique(bought["product_id"][about]))))
    for sample in checked:
        row, dense = journey.by_field[sample], journey.dense[sample]
        trips = in_time(bought, household == row[at["household"]])
        with_it = in_time(bought, (household == row[at["household"]]) & (product == row[at["product"]]))
        trip = with_it[round(float(np.expm1(dense[1])))]
        assert round(float(np.expm1(dense[0]))) == trips.index(trip)

        line = np.flatnonzero((bought["basket_id"] == trip) & (product == row[at["product"]]))[0]
        assert row[at["store"]] == ids("store", bought["store_id"][line : line + 1])[0]
        shelf = pc.and_(
            pc.and_(
                pc.equal(promoted["product_id"], bought["product_id"][line]),
                pc.equal(promoted["store_id"], bought["store_id"][line]),
            ),
            pc.equal(promoted["week"], bought["week"][line]),
        )
        place = promoted.filter(shelf)["display_location"][0].as_py()
        assert row[at["display_location"]] == hash_bytes(field_key("display_location"), place.encode())
        parts = row[[at["household"]]], row[[at["product"]]]
        assert row[at["household x product"]] == derived_ids("household x product", *parts)[0]


def columns(table: str) -> dict[str, pa.ChunkedArray]:
    read = pyarrow.parquet.read_table(package_data() / f"{table}.parquet")
    return {name: read[name].combine_chunks() for name in read.column_names}


def in_time(bought: dict[str, np.ndarray], lines: np.ndarray) -> list[int]:
    """The baskets of some lines of purchases, in the order of their times."""
    first: dict[int, tuple[np.datetime64, int]] = {}
    for basket, time in zip(bought["basket_id"][lines], bought["transaction_timestamp"][lines], strict=True):
        first[int(basket)] = min(first.get(int(basket), (time, int(basket))), (time, int(basket)))
    return sorted(first, key=lambda basket: first[basket])


def test_trips_come_in_time_order_and_history_only_grows(dataset: JourneyDataset, journey: SampleBatch) -> None:
    """A household's number of earlier trips never falls along the stream."""
    household = journey.by_field[:, names(dataset).index("household")]
    order = np.argsort(household, kind="stable")
    trips = journey.dense[order, 0]
    same = household[order][1:] == household[order][:-1]
    assert (np.diff(trips)[same] >= 0).all()
    assert journey.dense[:1000, 0].max() == pytest.approx(np.log1p(1), abs=1)  # the year begins with first trips


def test_every_pass_is_the_same(dataset: JourneyDataset) -> None:
    first, again = (next(iter(dataset)) for _ in range(2))
    np.testing.assert_array_equal(first.by_field, again.by_field)
    np.testing.assert_array_equal(first.labels, again.labels)
