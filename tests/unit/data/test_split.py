"""Held-out samples: exactly the last ones by time, for any order of rows and files, or the last ones in order."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

import esd
from esd.data import Dataset, open_data
from esd.data.schema import Schema
from esd.data.split import split
from esd.run.options import RunOptions
from esd.run.stream import held_out_samples, training_stream
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument
from tests.support.event_tables import write

URI = "synthetic:zipf?samples=1000"
START = dt.datetime(2026, 11, 1)
SCHEMA = Schema("clicked", ("row",), time="at")


def table_of(moments: list[dt.datetime], kind: pa.DataType | None = None) -> pa.Table:
    """Rows whose id is their number, in a random order of times."""
    at = pa.array(moments, pa.timestamp("us"))
    rows = pa.array(np.arange(len(moments)))
    return pa.table({"row": rows, "clicked": [0] * len(moments), "at": at if kind is None else at.cast(kind)})


@pytest.fixture(scope="module")
def moments() -> list[dt.datetime]:
    """1,000 minutes of ten days, of which some are the same."""
    rng = np.random.default_rng(4)
    return [START + dt.timedelta(minutes=int(each)) for each in rng.integers(0, 10 * 24 * 60, 1000)]


def numbers(dataset: Dataset, table: pa.Table) -> list[int]:
    """The rows that a part has, told from their ids."""
    (every,) = esd.read(table, Schema("clicked", ("row",)), batch_size=len(table))
    of_id = {int(value): row for row, value in enumerate(every.ids)}
    return [of_id[int(value)] for batch in dataset for value in batch.ids]


@pytest.mark.parametrize("name", ["frame", "e.parquet", "e.arrow", "e.csv"])
@pytest.mark.parametrize(("last", "hours"), [("1d", 24), ("36h", 36), ("90m", 1.5), ("0.5w", 84)])
def test_the_last_time_is_held_out(
    moments: list[dt.datetime], tmp_path: Path, name: str, last: str, hours: float
) -> None:
    table = table_of(moments)
    source = table if name == "frame" else write(table, tmp_path / name, piece=70)
    trained, held_out = esd.read(source, SCHEMA, batch_size=64).split(last=last)
    late = [each > max(moments) - dt.timedelta(hours=hours) for each in moments]
    assert numbers(held_out, table) == [row for row, each in enumerate(late) if each]
    assert numbers(trained, table) == [row for row, each in enumerate(late) if not each]
    assert (trained.samples, held_out.samples) == (late.count(False), late.count(True))
    whole = esd.read(source, SCHEMA).fingerprint
    assert len({trained.fingerprint, held_out.fingerprint, whole}) == 3


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.97])
def test_the_latest_share_is_held_out_and_samples_of_one_time_stay_together(
    moments: list[dt.datetime], share: float
) -> None:
    table = table_of(moments)
    trained, held_out = esd.read(table, SCHEMA).split(last=share)
    times = np.array([(each - START).total_seconds() for each in moments])
    cuts = [cut for cut in (*np.unique(times), np.inf) if (times >= cut).sum() <= round(share * 1000)]
    assert numbers(held_out, table) == np.flatnonzero(times >= min(cuts)).tolist()
    assert trained.samples + held_out.samples == 1000


@pytest.mark.parametrize(
    "kind", [pa.timestamp("s"), pa.timestamp("ns"), pa.timestamp("ms", "Europe/Berlin"), pa.string(), pa.date32()]
)
def test_times_of_every_type_are_cut_alike(moments: list[dt.datetime], kind: pa.DataType) -> None:
    table = table_of(moments, kind)
    days = [each.date() for each in moments]
    _, held_out = esd.read(table, SCHEMA).split(last="1d")
    by_day = [row for row, day in enumerate(days) if day == max(days)]
    by_time = [row for row, each in enumerate(moments) if each > max(moments) - dt.timedelta(days=1)]
    assert numbers(held_out, table) == (by_day if kind == pa.date32() else by_time)


@pytest.mark.parametrize("seconds", [[10, 400, 390, 100], [10.0, 400.5, 390.25, 100.0], ["10", "400", "390", "1e2"]])
def test_numbers_are_seconds(seconds: list[Any]) -> None:
    table = pa.table({"row": [0, 1, 2, 3], "clicked": [0] * 4, "at": pa.array(seconds)})
    _, held_out = esd.read(table, SCHEMA).split(last="1m")
    assert numbers(held_out, table) == [1, 2]


def test_texts_with_a_time_zone_and_nanoseconds_are_times() -> None:
    """pandas and databases write such texts; `esd data inspect` proposes such a column."""
    texts = ["2026-11-20T08:30:00Z", "2026-11-20 10:30:01+02:00", "2026-11-20T08:30:02.123456789", "2026-11-20"]
    zoned = "2026-11-20T10:30:03.000000009+02:00"
    expected = [dt.datetime(2026, 11, 20, 8, 30, second) for second in (0, 1, 2)]
    expected = [expected[0], expected[1], expected[2].replace(microsecond=123456), dt.datetime(2026, 11, 20)]
    expected += [dt.datetime(2026, 11, 20, 8, 30, 3)]
    table = pa.table({"row": range(5), "clicked": [0] * 5, "at": [*texts, zoned]})
    (times,) = esd.read(table, SCHEMA).times()
    np.testing.assert_array_equal(times, np.array(expected, "M8[us]").astype(np.int64))


def test_a_text_that_is_no_time_spoils_no_other() -> None:
    """The time of a text depends on no other text of its piece."""
    texts = ["10", "soon", "400", "1970-01-01T00:06:30", "nan", "100"]
    table = pa.table({"row": range(6), "clicked": [0] * 6, "at": texts})
    times = np.concatenate(list(esd.read(table, SCHEMA).times()))
    np.testing.assert_array_equal(times, np.array([10, 400, 390, 100]) * 10**6)


def test_days_that_are_files_and_dates_that_are_ids_too(tmp_path: Path) -> None:
    """A day's rows need not be in the last file; a column may be id and time."""
    schema = Schema("clicked", ("row", "day"), time="day")
    for day in (3, 1, 2):
        rows = pa.array(range(10 * day, 10 * day + 10))
        dates = pa.array([START.date() + dt.timedelta(days=4 - day)] * 10)
        pyarrow.parquet.write_table(
            pa.table({"row": rows, "clicked": [0] * 10, "day": dates}), tmp_path / f"{day}.parquet"
        )
    trained, held_out = esd.read(tmp_path, schema).split(last="1d")
    assert (trained.samples, held_out.samples) == (20, 10)
    (every,) = esd.read(tmp_path / "1.parquet", schema)
    np.testing.assert_array_equal(SampleBatch.concatenate(list(held_out)).ids, every.ids)


def test_a_row_without_a_time_is_named_by_its_number_in_the_file(tmp_path: Path) -> None:
    texts = ["2026-11-01", "2026-11-05", "soon", "2026-11-09", None]
    table = pa.table({"row": range(5), "clicked": [0] * 5, "at": texts})
    pyarrow.parquet.write_table(table, tmp_path / "e.parquet")
    trained, held_out = esd.read(tmp_path, SCHEMA).split(last="2d")
    for part in (trained, held_out):
        with pytest.raises(InvalidArgument, match=r"e.parquet: row 3 .*: column 'at': expected a time, .*found 'soon'"):
            list(part)
    _, skipped = esd.read(tmp_path, SCHEMA, skip_bad=2).split(last="2d")
    assert numbers(skipped, table) == [3]
    assert len(list(esd.read(tmp_path, SCHEMA))) == 1  # times matter to parts alone


def test_a_mistake_in_a_part_has_the_row_of_the_file(moments: list[dt.datetime], tmp_path: Path) -> None:
    table = table_of(moments)
    last = moments.index(max(moments))
    clicked = [7 if row == last else 0 for row in range(1000)]
    pyarrow.parquet.write_table(table.set_column(1, "clicked", pa.array(clicked)), tmp_path / "e.parquet")
    trained, held_out = esd.read(tmp_path, SCHEMA).split(last="1d")
    assert sum(map(len, trained)) == trained.samples
    with pytest.raises(
        InvalidArgument, match=rf"row {last + 1} .*: column 'clicked': expected the label 0 or 1 .*, found 7"
    ):
        list(held_out)


def test_a_run_trains_the_one_part_and_is_judged_by_the_other(
    moments: list[dt.datetime], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyarrow.parquet.write_table(table_of(moments), tmp_path / "e.parquet")
    (tmp_path / "schema.toml").write_text('label = "clicked"\nids = ["row"]\ntime = "at"\n')
    options = RunOptions(
        data=str(tmp_path / "e.parquet"), schema=tmp_path / "schema.toml", holdout="1d", epochs=2, shuffle=100
    )
    trained, held_out = esd.read(tmp_path / "e.parquet", SCHEMA).split(last="1d")
    opened: list[str] = []
    monkeypatch.setattr(RunOptions, "open_all", lambda _, uri, size: opened.append(uri) or esd.read(uri, SCHEMA))
    stream = training_stream(options)
    judged = held_out_samples(options, stream)
    assert judged is not None
    assert (stream.dataset.samples, judged.samples) == (2 * trained.samples, held_out.samples)
    assert opened == [options.data]  # once: the cut takes two passes over the times


@pytest.mark.parametrize("batch_size", [7, 300, 5000])
def test_without_times_the_last_in_order_are_held_out(batch_size: int) -> None:
    everything = open_data(URI, batch_size, seed=1)
    trained, held_out = split(everything, "0.23")
    assert (trained.samples, held_out.samples) == (770, 230)
    joined = [np.concatenate([batch.ids for batch in part]) for part in (trained, held_out, everything)]
    np.testing.assert_array_equal(np.concatenate(joined[:2]), joined[2])
    assert len({everything.fingerprint, trained.fingerprint, held_out.fingerprint}) == 3


@pytest.mark.parametrize(
    ("uri", "last", "named"),
    [
        ("synthetic:zipf", "0.1", "needs to know how many samples"),
        (URI, "0.0001", "leaves none for one of the two parts"),
        (URI, "1.0", "neither a share of the samples between 0 and 1 nor a time such as 1d"),
        (URI, "0d", "neither a share"),
        (URI, "1 day", "neither a share"),
        (URI, "1d", "is a time, and the samples of synthetic:zipf have none: name the column .* `time`"),
    ],
)
def test_what_cannot_be_held_out_is_refused(uri: str, last: str, named: str) -> None:
    with pytest.raises(InvalidArgument, match=named):
        split(open_data(uri, 100, seed=1), last)


def test_what_cannot_be_held_out_is_named_by_what_the_caller_used() -> None:
    with pytest.raises(InvalidArgument, match=r"^last='1 day' is neither"):
        split(open_data(URI, 100, seed=1), "1 day")
    with pytest.raises(InvalidArgument, match=r"^--holdout 1 day is neither"):
        RunOptions(data=URI, holdout="1 day").open_parts(100)


def test_parts_without_samples_and_columns_without_times_are_refused(moments: list[dt.datetime]) -> None:
    for last in ("99d", 0.0001):
        with pytest.raises(InvalidArgument, match="leaves no samples for one of the two parts"):
            esd.read(table_of(moments), SCHEMA).split(last=last)
    with pytest.raises(InvalidArgument, match="has no column 'when'"):
        esd.read(table_of(moments), Schema("clicked", ("row",), time="when"))
    listed = pa.table({"row": [1], "clicked": [0], "at": [[1]]})
    with pytest.raises(InvalidArgument, match=r"column 'at' is of type list<.*, expected a time"):
        esd.read(listed, SCHEMA)
    german = pa.table({"row": [1, 2], "clicked": [0, 1], "at": ["23.11.2026 08:30", "24.11.2026 08:30"]})
    with pytest.raises(InvalidArgument, match="goes by the samples' times, and none of them has a time, such as 2026-"):
        esd.read(german, SCHEMA).split(last="1d")
