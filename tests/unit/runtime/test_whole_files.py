"""A file is whole or as it was before, however its writing ends."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import BinaryIO

import pytest

from esd.services.runtime.whole_files import make_folder, sync_folder, write_whole
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


def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full, pytest.raises(OSError, match="No space left") as told:
        write_whole(tmp_path / "model", lambda _: os.write(full.fileno(), b"model"))
    assert told.value.filename == str(tmp_path / "model")


def test_of_two_writes_at_a_time_the_one_that_ends_last_stays_whole(tmp_path: Path) -> None:
    """As of a call that was repeated when its connection broke, while the first one still writes."""

    def write(file: BinaryIO) -> None:
        file.write(b"of the ")
        write_whole(tmp_path / "dense", lambda other: other.write(b"a shorter one"))
        file.write(b"longer one")

    write_whole(tmp_path / "dense", write)
    assert files_in(tmp_path) == {"dense": b"of the longer one"}


# As in a container, whose processes have the same numbers each time that it is started, and as others' do.
_IN_A_CONTAINER = """
import os, sys
from pathlib import Path
from esd.services.runtime.whole_files import write_whole
os.getpid = lambda: 1
write_whole(Path(sys.argv[1]), lambda file: file.write(b"whole") if sys.argv[2] == "write" else os._exit(7))
"""


def test_what_a_process_of_the_same_number_left_is_in_nobodys_way(tmp_path: Path) -> None:
    for what, code in (("die", 7), ("write", 0)):
        command = [sys.executable, "-c", _IN_A_CONTAINER, str(tmp_path / "model"), what]
        assert subprocess.run(command, check=False, timeout=240).returncode == code
    assert (tmp_path / "model").read_bytes() == b"whole"


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
