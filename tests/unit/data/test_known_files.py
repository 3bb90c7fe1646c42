"""Files that are replaced between two readings of a run would bring two data sets into one model: they are refused."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet
import pytest

from esd.data import Dataset, open_data
from esd.data.epochs import Epochs
from esd.run.stream import without_first
from esd.services.domain.errors import InvalidArgument

SCHEMA = 'label = "label"\nids = ["user"]\n'


def lines(first: int) -> str:
    return "user,label\n" + "".join(f"{user},{user % 2}\n" for user in range(first, first + 50))


def write_csv(file: Path, first: int) -> None:
    file.write_text(lines(first))


def write_parquet(file: Path, first: int) -> None:
    users = list(range(first, first + 50))
    pyarrow.parquet.write_table(pa.table({"user": users, "label": [user % 2 for user in users]}), file)


def write_gzip(file: Path, first: int) -> None:
    file.write_bytes(gzip.compress(lines(first).encode()))


def write_arrow(file: Path, first: int) -> None:
    users = list(range(first, first + 50))
    table = pa.table({"user": users, "label": [user % 2 for user in users]})
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def write_criteo(file: Path, first: int) -> None:
    file.write_text(
        "".join(f"{user % 2}\t{user}" + "\t5" * 12 + "\t05db9164" * 26 + "\n" for user in range(first, first + 50))
    )


def write_taobao(file: Path, first: int) -> None:
    file.write_text("".join(f"{user},{user + 7},3,pv,{1511544070 + user}\n" for user in range(first, first + 50)))


MOODY = """
from pathlib import Path

from esd.data import open_data
from esd.data.derived import DerivedDataset

class Moody(DerivedDataset):
    def __init__(self, request):
        super().__init__(open_data("synthetic:criteo?samples=300", 100, seed=0))
        self._mood = Path(request.argument)

    fingerprint = property(lambda self: self._mood.read_text())

    def __iter__(self):
        yield from self._source
"""

WRITERS = {
    "csv": write_csv, "csv.gz": write_gzip, "parquet": write_parquet, "arrow": write_arrow, "criteo": write_criteo,
    "taobao": write_taobao,
}  # fmt: skip


@pytest.fixture(params=WRITERS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def ending(kind: str) -> str:
    return "csv" if kind in ("criteo", "taobao") else kind


def opened(kind: str, folder: Path, pattern: str) -> Dataset:
    if kind in ("criteo", "taobao"):
        return open_data(f"{kind}:{pattern}", 16, seed=0, data_dir=folder)
    schema = folder / "schema.toml"
    schema.write_text(SCHEMA)
    return open_data(pattern, 16, seed=0, data_dir=folder, schema=schema)


def replace(write: Callable[[Path, int], None], file: Path) -> None:
    """Puts other samples in the place of a file, as a daily job does."""
    other = file.with_suffix(".new")
    write(other, 1000)
    other.replace(file)


def test_a_file_that_was_replaced_is_refused_by_its_name_when_it_is_opened_again(kind, tmp_path):
    file = tmp_path / f"events.{ending(kind)}"
    WRITERS[kind](file, 0)
    dataset = opened(kind, tmp_path, file.name)
    assert dataset.fingerprint
    samples = sum(map(len, dataset))
    assert samples >= 50

    replace(WRITERS[kind], file)
    with pytest.raises(InvalidArgument, match=rf"data file {file} has changed since this run began"):
        list(without_first(dataset, samples // 2))
    assert sum(map(len, opened(kind, tmp_path, file.name))) >= 50, "the next run takes the new file"


@pytest.mark.parametrize("pattern", ["days/*.{}", "days"], ids=["pattern", "folder"])
def test_a_later_file_that_was_replaced_is_refused_before_any_of_its_samples(kind, pattern, tmp_path):
    days = tmp_path / "days"
    days.mkdir()
    for day, first in (("a", 0), ("b", 100)):
        WRITERS[kind](days / f"{day}.{ending(kind)}", first)
    dataset = opened(kind, tmp_path, pattern.format(ending(kind)))
    assert dataset.fingerprint
    batches = iter(dataset)
    assert len(next(batches))

    replace(WRITERS[kind], days / f"b.{ending(kind)}")
    with pytest.raises(InvalidArgument, match=rf"data file {days}/b.{ending(kind)} has changed"):
        list(batches)


@pytest.mark.parametrize("pattern", ["days/*.csv", "days"], ids=["pattern", "folder"])
def test_a_file_that_comes_while_a_run_goes_on_is_none_of_its_files(pattern, tmp_path):
    days = tmp_path / "days"
    days.mkdir()
    write_csv(days / "b.csv", 0)
    dataset = opened("csv", tmp_path, pattern)
    assert dataset.fingerprint
    write_csv(days / "a.csv", 100)
    assert sum(map(len, dataset)) == 50
    assert sum(map(len, opened("csv", tmp_path, pattern))) == 100


def test_the_second_epoch_of_a_file_that_was_replaced_is_refused(tmp_path):
    write_csv(tmp_path / "events.csv", 0)
    epochs = Epochs(opened("csv", tmp_path, "events.csv"), epochs=2, shuffle=0, seed=0, batch_size=16)
    assert epochs.fingerprint
    batches = iter(epochs)
    for _ in range(3):
        next(batches)
    replace(write_csv, tmp_path / "events.csv")
    with pytest.raises(InvalidArgument, match=r"events\.csv has changed since this run began"):
        list(batches)


def test_a_file_that_was_copied_back_is_the_same(tmp_path):
    write_csv(tmp_path / "events.csv", 0)
    dataset = opened("csv", tmp_path, "events.csv")
    assert dataset.fingerprint
    write_csv(tmp_path / "copy.csv", 0)
    (tmp_path / "copy.csv").replace(tmp_path / "events.csv")
    assert sum(map(len, dataset)) == 50


def test_a_file_that_is_gone_is_named(tmp_path):
    write_csv(tmp_path / "events.csv", 0)
    dataset = opened("csv", tmp_path, "events.csv")
    assert dataset.fingerprint
    (tmp_path / "events.csv").unlink()
    with pytest.raises(InvalidArgument, match=r"events\.csv cannot be read: No such file"):
        list(dataset)


def test_samples_of_an_installed_reader_that_have_changed_are_refused(tmp_path, monkeypatch):
    installed = tmp_path / "moody-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: moody\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[esd.readers]\nmoody = moody:Moody\n")
    (tmp_path / "moody.py").write_text(MOODY)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mood").write_text("good")
    dataset = open_data(f"moody:{tmp_path}/mood", 16, seed=0)
    assert dataset.fingerprint
    assert list(dataset)
    (tmp_path / "mood").write_text("bad")
    with pytest.raises(
        InvalidArgument, match=r"of reader .* of moody 1 have changed .*: they were good, now they are bad"
    ):
        list(dataset)
