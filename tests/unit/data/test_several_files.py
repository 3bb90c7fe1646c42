"""Data of several files: the list, the order, and the errors of a single file."""

import gzip
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import esd
from esd.data import Dataset, open_data
from esd.data.paths import find_files
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import EsdError, InvalidArgument

RATINGS = "userId,movieId,rating,timestamp\n"


def criteo(day: int) -> str:
    """Two records of a day, which their first number tells."""
    return f"1\t{day}" + "\t5" * 12 + "\t05db9164" * 26 + "\n" + f"0\t{day}" + "\t" * 12 + "\t8cf07265" * 26 + "\n"


def write_days(folder: Path, days: list[int]) -> None:
    for day in days:
        (folder / f"day_{day}.gz").write_bytes(gzip.compress(criteo(day).encode()))


def opened(folder: Path, what: str, reader: str = "criteo", skip_bad: int = 0) -> Dataset:
    return open_data(f"{reader}:{what}", 1000, seed=0, skip_bad=skip_bad, data_dir=folder)


def days_of(dataset: Dataset) -> list[int]:
    """The days of the first of each two samples."""
    samples = SampleBatch.concatenate(list(dataset))
    assert samples.labels[:, 0].tolist() == [1.0, 0.0] * (len(samples) // 2)
    return [round(float(number)) for number in np.expm1(samples.dense[::2, 0])]


@pytest.mark.parametrize(
    ("what", "days"),
    [
        ("day_*.gz", [0, 2, 9, 10, 11, 23]),
        (".", [0, 2, 9, 10, 11, 23]),
        ("day_1?.gz, day_2.gz", [10, 11, 2]),
        ("../criteo/day_[0-9].gz,day_1*.gz", [0, 2, 9, 10, 11]),
    ],
)
def test_days_follow_each_other(tmp_path: Path, what: str, days: list[int]) -> None:
    folder = tmp_path / "criteo"
    folder.mkdir()
    write_days(folder, [0, 2, 9, 10, 11, 23])
    dataset = opened(folder, what)
    assert days_of(dataset) == days
    assert days_of(dataset) == days  # read again


def test_what_is_hidden_is_not_of_a_folder(tmp_path: Path) -> None:
    for hidden in (".day_1.gz.part", "_SUCCESS", "_logs/day_1.gz", ".tmp/day_1.gz"):
        (tmp_path / hidden).parent.mkdir(exist_ok=True)
        (tmp_path / hidden).write_bytes(b"no record")
    (tmp_path / "_day=3").mkdir()
    write_days(tmp_path / "_day=3", [3])
    assert days_of(opened(tmp_path, ".")) == [3]


def test_a_comma_may_be_part_of_a_name(tmp_path: Path) -> None:
    (tmp_path / "monday,tuesday.txt").write_text(criteo(4))
    assert days_of(opened(tmp_path, "monday,tuesday.txt")) == [4]


def test_numbers_in_names_count_by_value_for_every_reader(tmp_path: Path) -> None:
    for part in (1, 2, 10):
        folder = tmp_path / "events" / f"hour={part}"
        folder.mkdir(parents=True)
        pyarrow.parquet.write_table(pa.table({"y": [1], "c": [str(part)], "n": [float(part)]}), folder / "a.parquet")
    dataset = esd.read(tmp_path / "events", esd.Schema("y", ("c",), dense=("n",)))
    assert SampleBatch.concatenate(list(dataset)).dense[:, 0].tolist() == [1, 2, 10]


def test_names_that_differ_in_zeros_have_an_order_too(tmp_path: Path) -> None:
    names = ["part-01", "part-1", "part-1b", "part-2"]
    for name in reversed(names):
        (tmp_path / name).write_text("x")
    assert [file.name for file in find_files("part*", tmp_path)] == names


@pytest.mark.parametrize(
    ("reader", "good", "bad", "named"),
    [
        ("criteo", criteo(1), "", "data file {} has no records"),
        ("movielens", RATINGS + "1,2,3,4\n", "", "data file {} has no records"),
        ("movielens", RATINGS + "1,2,3,4\n", RATINGS, "data file {} has no records"),
        (
            "criteo",
            criteo(1),
            "# what these are\n",
            "{}:1: column 1 (label): expected 0 or 1, found '# what these are'",
        ),
        ("movielens", RATINGS + "1,2,3,4\n", "1,2,3,4\n", "{}:1: column 1: expected the header 'userId'"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_of_another_kind_is_refused_before_the_first_sample(
    tmp_path: Path, reader: str, good: str, bad: str, named: str, packed: bool
) -> None:
    for name, text in (("1.txt", good), ("2.txt", bad), ("3.txt", good)):
        (tmp_path / name).write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    with pytest.raises(InvalidArgument) as refused:
        opened(tmp_path, "*.txt", reader)
    assert str(refused.value).startswith(named.format(tmp_path / "2.txt"))


def test_a_mistake_has_the_line_of_its_file_and_skipped_ones_count_together(tmp_path: Path) -> None:
    for name in ("1.txt", "2.txt", "3.txt"):
        (tmp_path / name).write_text(criteo(1) + "bad\n")
    dataset = opened(tmp_path, "*.txt", skip_bad=3)
    assert days_of(dataset) == [1, 1, 1]
    assert dataset.skipped == 3
    with pytest.raises(InvalidArgument, match=r"3\.txt:3: column 1 .* \(--skip-bad 2 allows no more\)"):
        list(opened(tmp_path, "*.txt", skip_bad=2))


@pytest.mark.parametrize(
    ("what", "error", "named"),
    [
        ("day_*.gz", InvalidArgument, "day_*.gz does not exist"),
        ("empty", InvalidArgument, "empty has no file"),
        ("a.txt,none.txt", InvalidArgument, "none.txt does not exist"),
        ("a.txt,?.txt", InvalidArgument, "a.txt is named more than once by 'a.txt,?.txt'"),
        ("a.txt,", InvalidArgument, "have an empty name before or after a comma"),
        ("**b", InvalidArgument, "**b does not exist"),
        ("pipe", InvalidArgument, "pipe is not a file, a folder or a pattern of files"),
    ],
)
def test_files_that_cannot_be_meant_are_named(tmp_path: Path, what: str, error: type[EsdError], named: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.txt").write_text(criteo(1))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(error) as refused:
        opened(tmp_path, what)
    assert named in str(refused.value)


def test_the_fingerprint_is_of_the_content_in_its_order(tmp_path: Path) -> None:
    write_days(tmp_path, [1, 2])
    both = opened(tmp_path, "day_1.gz,day_2.gz").fingerprint
    assert both == opened(tmp_path, ".").fingerprint
    assert both != opened(tmp_path, "day_2.gz,day_1.gz").fingerprint
    assert "2 files" in both
    assert "files" not in opened(tmp_path, "day_1.gz").fingerprint  # that of a single file is as it was


def test_endings_may_be_in_capitals_and_hidden_files_are_found_by_their_names_only(tmp_path: Path) -> None:
    for name in ("a.csv", "B.CSV", ".c.csv", "_d.csv"):
        (tmp_path / name).write_text("u,y\na,1\n")
    schema = esd.Schema("y", ("u",))
    for pattern, samples in ((".", 2), ("*", 2), ("*.csv", 1), ("_*.csv", 1), (".c.csv", 1)):
        assert sum(map(len, esd.read(str(tmp_path / pattern), schema))) == samples, pattern
