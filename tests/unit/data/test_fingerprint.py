"""A data set's fingerprint is the same for the same samples only, so that no job goes on with another stream."""

import os

import pytest

from esd.data import hashing, open_data
from esd.data.hashing import file_fingerprint

MEBIBYTE = 1 << 20
HOUR_NS = 3_600_000_000_000


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "large"
    path.write_bytes(bytes(range(256)) * (8 * MEBIBYTE // 256))
    return path


def test_a_file_that_was_moved_or_touched_is_the_same(file):
    before = file_fingerprint(file)
    moved = file.rename(file.with_name("elsewhere"))
    os.utime(moved, ns=(0, 0))
    assert file_fingerprint(moved) == before


@pytest.mark.parametrize("at", [0, 4 * MEBIBYTE, 8 * MEBIBYTE - 1])
def test_another_beginning_middle_or_end_is_another_file(file, at):
    before = file_fingerprint(file)
    with file.open("r+b") as changed:
        changed.seek(at)
        changed.write(b"\xaa")
    assert file_fingerprint(file) != before


def test_a_file_that_stays_as_it_is_is_read_once_by_all_processes(file, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(hashing, "_CLOCK_STEP_NS", 0)
    first = file_fingerprint(file)
    monkeypatch.setattr(hashing.hashlib, "file_digest", lambda *_: pytest.fail("it is read again"))
    assert file_fingerprint(file) == first
    before = file.stat()
    file.write_bytes(bytes(8 * MEBIBYTE))
    os.utime(file, ns=(before.st_mtime_ns, before.st_mtime_ns))  # which changes ctime
    while file.stat().st_ctime_ns == before.st_ctime_ns:  # within one step of the file system's clock
        os.utime(file, ns=(before.st_mtime_ns, before.st_mtime_ns))
    with pytest.raises(pytest.fail.Exception, match="read again"):
        file_fingerprint(file)


def test_a_file_that_was_just_written_is_not_remembered(file, tmp_path, monkeypatch):
    """It may be changed once more within the same step of the file system's clock."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(hashing, "_CLOCK_STEP_NS", HOUR_NS)  # a busy machine may take seconds
    file_fingerprint(file)
    assert not (tmp_path / "cache").exists()


def test_a_longer_file_and_every_byte_of_a_small_one_count(tmp_path):
    path = tmp_path / "small"
    seen = set()
    for content in (b"", b"a", b"ab", b"abc", b"abd", b"a" * 200_000, b"a" * 199_999 + b"b"):
        path.write_bytes(content)
        seen.add(file_fingerprint(path))
    assert len(seen) == 7


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("synthetic:zipf?keys=20000", "synthetic:zipf?keys=30000"),
        ("synthetic:criteo", "synthetic:avazu"),
        ("synthetic:criteo", "flights"),
    ],
)
def test_other_data_has_another_fingerprint_which_a_job_can_carry(one, other):
    prints = [open_data(uri, 10, seed=0).fingerprint for uri in (one, other)]
    assert prints[0] != prints[1]
    assert max(map(len, prints)) <= 1000
    assert open_data(one, 10, seed=0).fingerprint == prints[0]


def test_the_seed_of_a_synthetic_stream_counts():
    prints = {open_data("synthetic:zipf", 10, seed=seed).fingerprint for seed in (0, 1)}
    assert len(prints) == 2
