"""Quotes of a file of texts that are opened and not closed: pyarrow takes all that follows for one value."""

from __future__ import annotations

import gzip
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pyarrow as pa

_END = re.compile(rb'(?:[^"]|"")*+"')  # of a quoted value; a quote in it is doubled


class CountingQuotes(io.RawIOBase):
    """A stream that counts the quotes in what is read of it."""

    def __init__(self, source: pa.NativeFile) -> None:
        super().__init__()
        self._source = source
        self._odd = self._ended = False

    @property
    def one_may_be_open(self) -> bool:
        """Whether it was read to its end and has an odd number of quotes."""
        return self._ended and self._odd

    def readable(self) -> bool:
        """Tells that it is read."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Reads up to `size` bytes; nothing is left when there are none."""
        found = cast(bytes, self._source.read(None if size < 0 else size))
        self._odd ^= bool(found.count(b'"') % 2)
        self._ended |= not found
        return found


@dataclass(frozen=True, slots=True)
class Quoted:
    """A quoted value that goes on behind the end of its line.

    Attributes:
        row: the row that it is in, from 1 on; the header is row 0.
        line: the line that opens it, from 1 on.
        end: the line that closes it; None: nothing does.
    """

    row: int
    line: int
    end: int | None

    def __str__(self) -> str:
        return f"the quote that line {self.line} opens is " + (
            "not closed" if self.end is None else f"closed by line {self.end}"
        )


def quoted_over_lines(file: Path, delimiter: str) -> Iterator[Quoted]:
    """Yields the values of a file that have the ends of lines in them, in order.

    A quote opens a value only at its beginning: elsewhere it is a letter as any other.
    """
    begin = re.compile(rb'(?:^|%s)"' % re.escape(delimiter.encode()))
    row, opened = 0, 0
    with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            at = 0
            while opened or b'"' in line:
                if opened:
                    end = _END.match(line, at)
                    if end is None:
                        break
                    if number > opened:
                        yield Quoted(row, opened, number)
                    opened, at = 0, end.end()
                found = begin.search(line, at)
                if found is None:
                    break
                opened, at = number, found.end()
            if not opened and line.strip(b"\r\n"):  # pyarrow leaves out what is empty
                row += 1
    if opened:
        yield Quoted(row, opened, None)
