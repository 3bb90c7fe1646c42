"""Delimited text: its format, its records, and the treatment of malformed lines."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from esd.data.hashing import field_key
from esd.data.lines import MAX_LINE_BYTES
from esd.native import text as native
from esd.services.domain.errors import InvalidArgument

_log = logging.getLogger(__name__)


class Kind(Enum):
    """The kind of a column's values. The values are the parser's names."""

    SKIP = "skip"
    ID = "id"
    INTEGER = "integer"
    DECIMAL = "decimal"
    FLAG = "flag"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a file. An optional number may be absent; it is then NaN."""

    name: str
    kind: Kind
    optional: bool = False


@dataclass(frozen=True, slots=True)
class TextFormat:
    """The columns of a file in order, and how it separates them.

    Attributes:
        header: the first line repeats the columns' names, exactly.
        quoted: fields may stand in double quotes.
        missing: how an absent number is written, besides an empty field.
    """

    columns: tuple[Column, ...]
    delimiter: str
    header: bool = False
    quoted: bool = False
    missing: str = ""

    def names(self, *kinds: Kind) -> tuple[str, ...]:
        """Returns the names of the columns of these kinds, in file order."""
        return tuple(column.name for column in self.columns if column.kind in kinds)


@dataclass(frozen=True, slots=True)
class Records:
    """n parsed records.

    Attributes:
        ids: uint64 [n, id columns], in file order.
        numbers: float64 [n, integer, decimal and flag columns], in file order; an absent number is NaN.
    """

    ids: NDArray[np.uint64]
    numbers: NDArray[np.float64]


class RecordReader:
    """Parses the blocks of lines of files, one file after the other.

    Attributes:
        skipped: malformed records skipped so far.
    """

    def __init__(self, text_format: TextFormat, skip_bad: int) -> None:
        self._format = text_format
        self._skip_bad = skip_bad
        self._source = ""
        self._lines = 0  # of the source, before the block that is parsed
        self._parser = native.Parser(
            [(c.kind.value, c.optional, field_key(c.name)) for c in text_format.columns],
            text_format.delimiter,
            quoted=text_format.quoted,
            missing=text_format.missing,
            max_line_bytes=MAX_LINE_BYTES,
        )
        self.skipped = 0

    def read(self, source: str, blocks: Iterable[bytes], *, lines: int = 0) -> Iterator[Records]:
        """Yields the records of each block of a file.

        Args:
            source: the name of the file in messages.
            blocks: of its lines.
            lines: of the file that come before them.

        Raises:
            InvalidArgument: a malformed record when `skip_bad` of them were skipped already; another header.
        """
        self._source, self._lines = source, lines
        header_due = self._format.header
        for block in blocks:
            text = block
            if header_due:
                text = self._after_header(block)
                header_due = False
            ids, numbers, lines, mistakes = self._parser.parse(text, self._skip_bad - self.skipped)
            for mistake in mistakes:
                self._skip(mistake)
            self._lines += lines
            if len(ids) > 0:
                yield Records(ids, numbers)
        if header_due:
            raise InvalidArgument(f"data file {source} has no records")

    def check_beginning(self, source: str, block: bytes) -> None:
        """Refuses a file that has no records, or another beginning than its format, by its first block of lines.

        Raises:
            InvalidArgument: names the file and its fault.
        """
        self._source, self._lines = source, 0
        text = self._after_header(block) if self._format.header and block else block
        if not text:
            raise InvalidArgument(f"data file {source} has no records")
        if not self._skip_bad:
            first, end, _ = text.partition(b"\n")
            *_, mistakes = self._parser.parse(first + end, 0)
            for mistake in mistakes:
                self._skip(mistake)

    def _after_header(self, block: bytes) -> bytes:
        line, _, rest = block.partition(b"\n")
        found = line.decode("utf-8-sig", "replace").rstrip("\r").split(self._format.delimiter)
        if self._format.quoted:
            found = [name.strip('"') for name in found]
        expected = [column.name for column in self._format.columns]
        for number, (name, wanted) in enumerate(zip_longest(found, expected), start=1):
            if name != wanted:
                raise InvalidArgument(
                    f"{self._source}:1: column {number}: expected {_header(wanted)}, found {_header(name)}"
                )
        self._lines = 1
        return rest

    def _skip(self, mistake: tuple[int, int, str, bytes | None]) -> None:
        message = self._describe(mistake)
        if self.skipped == self._skip_bad:
            allowed = f"--skip-bad {self._skip_bad} allows no more" if self._skip_bad else "--skip-bad N would skip it"
            raise InvalidArgument(f"{message} ({allowed})")
        if self.skipped == 0:
            _log.warning("skipping a malformed record, further ones are only counted: %s", message)
        self.skipped += 1

    def _describe(self, mistake: tuple[int, int, str, bytes | None]) -> str:
        line, column, expected, found = mistake
        place = f"{self._source}:{self._lines + line + 1}: "
        if 1 <= column <= len(self._format.columns):
            place += f"column {column} ({self._format.columns[column - 1].name}): "
        elif column:
            place += f"column {column}: "
        if found is None:
            return f"{place}expected {expected}, found the end of the line"
        return f"{place}expected {expected}, found {found.decode('utf-8', 'backslashreplace')!r}"


def _header(name: str | None) -> str:
    return "the end of the header" if name is None else f"the header {name[:40]!r}"
