"""A file is there whole or as it was, whatever ends its writing."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import BinaryIO

import pytest

from services.domain.whole_files import make_folder, sync_folder, write_whole
from tests.support.power_cut import Disk, files_in


def test_what_was_written_survives_a_power_cut_in_folders_that_had_to_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(monkeypatch)
    for data in (b"first", b"second"):
        write_whole(tmp_path / "some/where/model", lambda file, data=data: file.write(data))
        assert disk.left_in(tmp_path) == {"some/where/model": data} == files_in(tmp_path)


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "no room"), KeyboardInterrupt()])
def test_what_was_there_stays_when_writing_ends_early_and_no_draft_does(tmp_path: Path, error: BaseException) -> None:
    def write(file: BinaryIO) -> None:
        file.write(b"half")
        raise error

    write_whole(tmp_path / "model", lambda file: file.write(b"whole"))
    with pytest.raises(type(error)):
        write_whole(tmp_path / "model", write)
    assert files_in(tmp_path) == {"model": b"whole"}


def test_of_two_writes_at_a_time_the_one_that_ends_last_stays_whole(tmp_path: Path) -> None:
    """As of a call that was repeated when its connection broke, while the first one still writes."""

    def write(file: BinaryIO) -> None:
        file.write(b"of the ")
        write_whole(tmp_path / "dense", lambda other: other.write(b"a shorter one"))
        file.write(b"longer one")

    write_whole(tmp_path / "dense", write)
    assert files_in(tmp_path) == {"dense": b"of the longer one"}


def test_a_secret_is_nobody_elses_while_it_is_a_draft(tmp_path: Path) -> None:
    modes = []

    def write(file: BinaryIO) -> None:
        modes.append(os.fstat(file.fileno()).st_mode & 0o777)

    make_folder(tmp_path / "all/own", mode=0o700)
    write_whole(tmp_path / "all/own/password", write, mode=0o600)
    assert modes == [0o600]
    assert (tmp_path / "all/own").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "all").stat().st_mode & 0o077


def test_a_file_system_without_fsync_of_folders_is_no_obstacle_and_a_broken_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fsync(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("os.fsync", fsync)
    number = errno.EINVAL
    sync_folder(tmp_path)
    number = errno.EIO
    with pytest.raises(OSError, match="Input/output"):
        sync_folder(tmp_path)
