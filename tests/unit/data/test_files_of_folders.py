"""No file is left out without a word: links, endings, folders that a pattern names, and Hive's `day=...` as columns."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

import esd
from esd.data import open_data
from esd.data.paths import find_files, folder_values
from esd.data.schema_file import read_schema
from esd.data.tables import propose
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument
from tests.support.event_tables import write

SCHEMA = esd.Schema("y", ("u",))
PART = pa.table({"y": [1, 0], "u": ["a", "b"]})


def count(source: Path | str, schema: esd.Schema = SCHEMA) -> int:
    return sum(len(batch) for batch in esd.read(source, schema))


@pytest.mark.parametrize("pattern", ["d", "d/*", "d/**/*.csv"])
def test_linked_folders_are_read_once(tmp_path: Path, pattern: str) -> None:
    for name in ("d/in/a.csv", "elsewhere/b.csv"):
        (tmp_path / name).parent.mkdir(parents=True)
        write(PART, tmp_path / name)
    (tmp_path / "d/linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/around").symlink_to(tmp_path / "elsewhere")
    assert count(f"{tmp_path}/{pattern}") == 4


@pytest.mark.parametrize("pattern", ["d", "d/*.csv", "d/b.csv"])
@pytest.mark.parametrize("read", [count, lambda each: open_data(f"movielens:{each}", 10, seed=0)])
def test_a_link_without_a_target_is_named(tmp_path: Path, pattern: str, read: Callable[[str], object]) -> None:
    (tmp_path / "d").mkdir()
    write(PART, tmp_path / "d/a.csv")
    (tmp_path / "d/b.csv").symlink_to(tmp_path / "gone.csv")
    with pytest.raises(InvalidArgument, match=r"d/b.csv is a link to .*gone.csv, which does not exist"):
        read(f"{tmp_path}/{pattern}")


def test_files_of_a_known_content_are_read_and_others_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Hive's 000000_0, `.pq` and `.parq` are Parquet by their first bytes."""
    for name in ("a.parquet", "b.pq", "c.parq", "000000_0"):
        pyarrow.parquet.write_table(PART, tmp_path / name)
    write(PART, tmp_path / "e.arrow").rename(tmp_path / "e.ipc")
    (tmp_path / "notes.txt").write_text("no data")
    (tmp_path / "_SUCCESS").touch()
    os.mkfifo(tmp_path / "pipe.csv")
    assert count(tmp_path) == 10
    assert "2 files of folder" in caplog.text
    assert "notes.txt, pipe.csv" in caplog.text
    assert count(tmp_path / "b.pq") == 2


def test_an_address_is_no_path(tmp_path: Path) -> None:
    for address in ("https://host/a.csv", "file:///a.csv", "s3a://bucket/a.csv", "s3:///a.csv"):
        with pytest.raises(
            InvalidArgument, match=r"are remote: of remote files, s3://BUCKET/PATH and gs://BUCKET/PATH"
        ):
            find_files(address, tmp_path)


def test_a_name_that_is_no_utf8_is_shown_and_refused(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path)
    with open(folder + b"/caf\xe9.csv", "wb") as file:  # noqa: PTH123 - bytes are no Path
        file.write(b"y,u\n1,a\n")
    for source in (tmp_path, Path(os.fsdecode(folder + b"/caf\xe9.csv"))):
        with pytest.raises(InvalidArgument, match=r"caf\\xe9.csv has a name that is not UTF-8: rename it"):
            count(source)


@pytest.mark.parametrize("ending", ["parquet", "csv", "arrow"])
def test_names_of_folders_are_columns(tmp_path: Path, ending: str) -> None:
    for day in (18, 19, 20):
        folder = tmp_path / f"day=2026-11-{day}" / f"hour={day - 10}"
        folder.mkdir(parents=True)
        write(PART, folder / f"part.{ending}")
    schema = esd.Schema("y", ("u", "day"), dense=("hour",), time="day")
    dataset = esd.read(tmp_path, schema)
    samples = SampleBatch.concatenate(list(dataset))
    assert samples.dense[:, 0].tolist() == [8, 8, 9, 9, 10, 10]
    days = pa.table({"y": [1], "u": ["a"], "day": ["2026-11-19"], "hour": [9]})
    (same,) = esd.read(days, schema, labelled=False)
    assert same.by_field[0, 1] == samples.by_field[2, 1]
    assert [len(SampleBatch.concatenate(list(part))) for part in dataset.split(last="1d")] == [4, 2]
    (tmp_path / "s.toml").write_text(propose(str(tmp_path), rows=100).to_toml())
    assert read_schema(tmp_path / "s.toml").time == "day"


def test_a_column_of_the_file_counts_before_its_folder() -> None:
    names = "a=b/day=1/x/day=2%2F3/none=__HIVE_DEFAULT_PARTITION__/e.csv"
    assert folder_values(Path(names)) == {"a": "b", "day": "2/3", "none": None}


def test_the_file_s_own_column_is_read(tmp_path: Path) -> None:
    (tmp_path / "u=z").mkdir()
    file = write(PART, tmp_path / "u=z/e.parquet")
    assert len({*next(iter(esd.read(file, SCHEMA))).ids.tolist()}) == 2
