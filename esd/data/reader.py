"""A reader opens a data set by its name and an argument, `criteo:train.txt`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from esd.data.dataset import Dataset
from esd.data.paths import find_files
from esd.data.remote import DataFile
from esd.services.domain.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """The request to a reader.

    Attributes:
        reader: its name.
        argument: the text after the name and a colon; empty: there is none.
        batch_size: samples of a yielded batch, at most.
        seed: decides samples that are made up; others do not depend on it.
        skip_bad: malformed records that are skipped and counted before one is an error.
        folder: where relative paths start.
    """

    reader: str
    argument: str
    batch_size: int
    seed: int = 0
    skip_bad: int = 0
    folder: Path = Path()

    def files(self) -> tuple[DataFile, ...]:
        """Returns the files that the argument stands for, in the order of esd/data/paths.py; at least one.

        Raises:
            InvalidArgument: there is no such file; there is no argument, or its files cannot be read.
        """
        if not self.argument:
            raise InvalidArgument(f"data {self.reader!r} names no file, write {self.reader}:PATH")
        return find_files(self.argument, self.folder)

    def nothing(self) -> None:
        """Raises InvalidArgument if there is an argument, of which the reader would make nothing."""
        if self.argument:
            raise InvalidArgument(f"data {self.reader!r} takes nothing behind its name, found {self.argument!r}")


Reader: TypeAlias = Callable[[ReadRequest], Dataset]
