"""The contents of the disk after a power failure now: the files and names that were synced, as they were then."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest


class Disk:
    """Keeps the state that each `os.fsync` of this process puts on the disk.

    No other write counts, though a real disk may have more: the state found here is on every disk.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._fsync = os.fsync
        self._files: dict[int, bytes] = {}
        self._folders: dict[int, dict[str, int]] = {}
        monkeypatch.setattr("os.fsync", self._sync)

    def left_in(self, folder: Path) -> dict[str, bytes]:
        """Returns the files that would be left below a folder, by name, empty where no content was synced."""
        left: dict[str, bytes] = {}
        for name, inode in self._folders.get(folder.stat().st_ino, {}).items():
            if (folder / name).is_dir():
                left |= {f"{name}/{below}": data for below, data in self.left_in(folder / name).items()}
            else:
                left[name] = self._files.get(inode, b"")
        return left

    def _sync(self, descriptor: int) -> None:
        self._fsync(descriptor)
        what = os.fstat(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").resolve()
        if stat.S_ISDIR(what.st_mode):
            self._folders[what.st_ino] = {entry.name: entry.inode() for entry in os.scandir(path)}
        else:
            self._files[what.st_ino] = path.read_bytes()


def files_in(folder: Path) -> dict[str, bytes]:
    """Returns all files below a folder by their names, as a process sees them."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
