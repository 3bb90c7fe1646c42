import errno
import json
import os

import numpy as np
import pytest

from esd.data import count_distinct, open_data
from esd.data import distinct as distinct_module
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument

HEADER = "userId,movieId,rating,timestamp\n"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    home = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    return home / "esd" / "distinct"


@pytest.fixture
def ratings(tmp_path):
    file = tmp_path / "ratings.csv"
    file.write_text(HEADER + "1,10,5,0\n1,11,3,0\n2,10,1,0\n")
    return file


@pytest.fixture
def counted(monkeypatch):
    """One entry for every time that a data set was really counted."""
    calls = []
    counter = distinct_module.native.DistinctIds
    monkeypatch.setattr(distinct_module.native, "DistinctIds", lambda: calls.append(1) or counter())
    return calls


def test_counts_once_and_remembers(ratings, counted, cache):
    assert count_distinct(f"movielens:{ratings}") == 4
    assert count_distinct(f"movielens:{ratings}") == 4
    assert len(counted) == 1
    assert len(list(cache.iterdir())) == 1


def test_another_content_is_counted_anew_and_a_moved_file_is_not(ratings, counted):
    count_distinct(f"movielens:{ratings}")
    ratings.write_text(HEADER + "1,10,5,0\n1,12,3,0\n3,10,1,0\n4,13,1,0\n")
    assert count_distinct(f"movielens:{ratings}") == 6
    moved = ratings.rename(ratings.with_name("moved"))
    os.utime(moved, ns=(0, 0))
    assert count_distinct(f"movielens:{moved}") == 6
    assert len(counted) == 2


@pytest.mark.parametrize("content", ["", "[]", "{", '{"question": "other", "answer": 1}'])
def test_a_damaged_memory_is_not_believed(ratings, cache, content):
    count_distinct(f"movielens:{ratings}")
    (entry,) = cache.iterdir()
    entry.write_text(content)
    assert count_distinct(f"movielens:{ratings}") == 4
    assert json.loads(entry.read_text())["answer"] == 4


def test_a_read_only_home_is_no_obstacle(ratings, monkeypatch, caplog):
    monkeypatch.setenv("XDG_CACHE_HOME", str(ratings))  # a file: nothing can be written below it
    for _ in range(2):
        assert count_distinct(f"movielens:{ratings}") == 4
    assert caplog.text.count("are not remembered") == 1


def test_a_user_without_a_home_is_no_obstacle(ratings, monkeypatch, caplog):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")

    def nobody(_):
        raise KeyError  # as of a container that runs as a number without a name

    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert count_distinct(f"movielens:{ratings}") == 4
    assert "this user has no home directory" in caplog.text


def test_a_full_disk_leaves_no_half_of_an_answer(ratings, cache, monkeypatch, caplog):
    def fsync(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr("os.fsync", fsync)
        assert count_distinct(f"movielens:{ratings}") == 4
    assert "No space left" in caplog.text
    assert not list(cache.parent.rglob("*.*"))


def test_equals_numpy_and_depends_on_the_seed():
    uri = "synthetic:zipf?samples=5000"
    for seed in (0, 1):
        samples = SampleBatch.concatenate(list(open_data(uri, 100, seed=seed)))
        assert count_distinct(uri, seed=seed) == len(np.unique(samples.ids))


def test_an_endless_stream_cannot_be_counted():
    with pytest.raises(InvalidArgument, match="'synthetic:criteo' is endless: give --cache-rows"):
        count_distinct("synthetic:criteo")
