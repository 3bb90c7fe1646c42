"""Alibaba's User Behavior data: the sample of a view, and that files and blocks do not change it."""

from __future__ import annotations

import datetime as dt
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from esd.data import Dataset, lines, open_data
from esd.data.hashing import field_key, hash_bytes
from esd.data.split import split
from esd.run.options import RunOptions
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.ids import in_table

TABLES = {"user": 0, "item": 1, "category": 2}
MORNING = int(dt.datetime(2017, 11, 25, tzinfo=dt.UTC).timestamp())


@cache
def id_of(column: str, value: int) -> int:
    hashed = np.array([hash_bytes(field_key(column), str(value).encode())], np.uint64)
    return int(in_table(hashed, TABLES[column])[0])


class Log:
    """The actions of 60 users, in the order of the file: user, item, category, behaviour, time."""

    def __init__(self) -> None:
        random = np.random.default_rng(5)
        self.rows: list[tuple[int, int, int, str, int]] = []
        for user in random.permutation(60):
            for _ in range(int(random.integers(1, 60))):
                item = int(random.integers(1000))
                behaviour = str(random.choice(["pv", "pv", "pv", "buy", "cart", "fav"]))
                moment = MORNING + int(random.integers(0, 9 * 86400, dtype=np.int64))
                self.rows.append((int(user), item, item % 7, behaviour, moment))

    def text(self) -> str:
        return "".join(f"{','.join(map(str, row))}\n" for row in self.rows)

    def views(self) -> list[tuple[int, int, int, int]]:
        """User, item, category and time of all views, in the order of the samples."""
        users = list(dict.fromkeys(row[0] for row in self.rows))
        views = [(row[0], row[1], row[2], row[4]) for row in self.rows if row[3] == "pv"]
        return sorted(views, key=lambda view: (users.index(view[0]), view[3]))


@pytest.fixture(scope="module")
def log() -> Log:
    return Log()


def opened(folder: Path, what: str = "*.csv", batch_size: int = 100) -> Dataset:
    return open_data(f"taobao:{what}", batch_size, seed=0, data_dir=folder)


def read(dataset: Dataset) -> SampleBatch:
    samples = SampleBatch.concatenate(list(dataset))
    samples.check_numbers()
    samples.check_shape(dataset.features, 0, 1)
    return samples


def parts(samples: SampleBatch) -> list[list[list[int]]]:
    """By sample and feature, the ids."""
    assert samples.lengths is not None
    ends = np.cumsum(samples.lengths.reshape(-1))
    pieces = [piece.tolist() for piece in np.split(samples.ids, ends[:-1])]
    return [pieces[at : at + 5] for at in range(0, len(pieces), 5)]


def test_a_view_is_a_sample_and_so_is_what_somebody_else_looked_at(tmp_path: Path, log: Log) -> None:
    (tmp_path / "UserBehavior.csv").write_text(log.text())
    samples = read(opened(tmp_path))
    found, labels = iter(parts(samples)), iter(samples.labels[:, 0].tolist())
    views = log.views()
    of_users: dict[int, set[tuple[int, int]]] = {}
    others = []
    for at, (user, item, category, _) in enumerate(views):
        seen = [view for view in views[:at] if view[0] == user][-20:]
        history = [id_of("item", view[1]) for view in seen], [id_of("category", view[2]) for view in seen]
        assert next(found) == [[id_of("user", user)], [id_of("item", item)], [id_of("category", category)], *history]
        assert next(labels) == 1
        of_users.setdefault(user, set()).add((id_of("item", item), id_of("category", category)))
        if len(of_users) == 1:  # nobody is before
            continue
        shown_user, shown_item, shown_category, *shown_history = next(found)
        assert next(labels) == 0
        assert (shown_user, *shown_history) == ([id_of("user", user)], *history)
        shown = shown_item[0], shown_category[0]
        assert any(shown in earlier for other, earlier in of_users.items() if other != user)
        others.append(shown_item[0])
    assert next(labels, None) is None
    assert len(set(others)) > len(others) / 3  # draws, and not always the same ones
    assert samples.groups is not None
    assert len(set(samples.groups.tolist())) == len({view[0] for view in views})


def test_neither_blocks_nor_files_nor_batches_change_the_samples(
    tmp_path: Path, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("esd.data.readers.taobao._OTHERS", 100)
    text = log.text()
    for folder in ("whole", "cut"):
        (tmp_path / folder).mkdir()
    (tmp_path / "whole" / "a.csv").write_text(text)
    middle = text.index("\n", len(text) // 2) + 1
    (tmp_path / "cut" / "part-9.csv").write_text(text[:middle])
    (tmp_path / "cut" / "part-10.csv").write_text(text[middle:])
    whole = read(opened(tmp_path / "whole"))
    monkeypatch.setattr(lines, "BLOCK_BYTES", 500)
    for dataset in (opened(tmp_path / "whole"), opened(tmp_path / "cut", batch_size=7)):
        for _ in range(2):
            samples = read(dataset)
            assert samples.ids.tolist() == whole.ids.tolist()
            assert samples.labels.tolist() == whole.labels.tolist()


def test_the_last_days_are_held_out(tmp_path: Path, log: Log) -> None:
    (tmp_path / "a.csv").write_text(log.text())
    dataset = opened(tmp_path)
    everything = {tuple(map(tuple, sample)) for sample in parts(read(dataset))}
    trained, held_out = (read(part) for part in split(dataset, "2d"))
    assert len(trained) > len(held_out) > 100
    assert {tuple(map(tuple, sample)) for part in (trained, held_out) for sample in parts(part)} == everything
    times = [view[3] for view in log.views()]
    late = [time > max(times) - 2 * 86400 for time in times]
    assert held_out.labels.sum() == sum(late)
    names = {part.fingerprint for part in (dataset, *split(dataset, "2d"))}
    assert len(names) == 3


def test_a_job_has_a_table_of_users_one_of_items_and_one_of_categories(tmp_path: Path, log: Log) -> None:
    (tmp_path / "a.csv").write_text(log.text())
    dataset = opened(tmp_path)
    job = RunOptions(data="taobao:a.csv", model="tbsm").job(
        features=dataset.features, dense_features=(), parameter_servers=("any",), table="views"
    )
    assert [table.name for table in job.tables] == ["views", "views~item", "views~category"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "has no records"),
        ("user,item,category,behaviour,timestamp\n", r"a\.csv:1: column 5 \(timestamp\): expected an integer"),
        ("1,2,3,buy,4\n", r"a\.csv has no line with the behaviour pv"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InvalidArgument, match=named):
        list(opened(tmp_path))


def test_memory_is_bounded_where_lines_do_not_end_a_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("esd.data.readers.taobao._MOST_VIEWS", 100)
    (tmp_path / "a.csv").write_text("1,2,3,pv,4\n" * 101)
    with pytest.raises(InvalidArgument, match="a user has more than 100 views: the lines of a user stand together"):
        list(opened(tmp_path))
