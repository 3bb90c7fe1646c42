"""A folder of files that are written whole: on a disk, or objects of an object store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import BinaryIO, Protocol


class Writable(Protocol):
    """A file that is being written."""

    def write(self, data: bytes, /) -> object:
        """Adds data to its end."""


class Folder(Protocol):
    """Named files, each of which appears whole or not at all.

    Every method raises FailedPrecondition, StorageUnwritable or Unavailable, with the place of the file, where it
    cannot do its work.
    """

    def place(self, name: str) -> str:
        """Returns where a file is, in words for an error."""

    def names(self) -> set[str]:
        """Returns the names of all files."""

    def size(self, name: str) -> int | None:
        """Returns the bytes of a file; None if it does not exist."""

    def open(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Opens a file to read and seek in it. An OSError of the block counts as an error of the file."""

    def write(self, name: str, write: Callable[[Writable], object]) -> int:
        """Creates or replaces a file, which `write` fills; returns its bytes."""

    def remove(self, name: str) -> None:
        """Removes a file if it exists."""


def write_bytes(folder: Folder, name: str, data: bytes) -> None:
    """Writes a small file whole."""
    folder.write(name, lambda file: file.write(data))


def read_bytes(folder: Folder, name: str) -> bytes | None:
    """Returns the content of a small file; None if it does not exist."""
    if folder.size(name) is None:
        return None
    with folder.open(name) as file:
        return file.read()
