"""Quotes of a file of texts that are closed late or never: pyarrow takes all that lies between for one value."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from dataclasses import dataclass

from esd.data.remote import DataFile

_END = re.compile(rb'(?:[^"]|"")*+"')  # of a quoted value; a quote in it is doubled


@dataclass(frozen=True, slots=True)
class Quoted:
    """A quoted value that continues after the end of its line.

    Attributes:
        row: the row of the value, from 1 on; the header is row 0.
        line: the line that opens it, from 1 on.
        end: the line that closes it; None: no line does.
        swallows_rows: whether every whole line within the value has as many delimiters as a row.
    """

    row: int
    line: int
    end: int | None
    swallows_rows: bool = False

    def __str__(self) -> str:
        return f"the quote that line {self.line} opens is " + (
            "not closed" if self.end is None else f"closed by line {self.end}"
        )


def swallows_rows(value: str, delimiter: str, columns: int) -> bool:
    """Tells whether the lines within a value look like rows: a quote too many has made one value of them.

    The first and the last line of the value are parts of rows, and do not count.
    """
    lines = value.split("\n")[1:-1]
    return bool(lines) and all(line.count(delimiter) == columns - 1 for line in lines)


def quoted_over_lines(file: DataFile, delimiter: str, columns: int = 0) -> Iterator[Quoted]:
    """Yields the values of a file that have the ends of lines in them, in order.

    A quote opens a value only at its beginning: elsewhere it is a letter like any other.

    Args:
        file: the file.
        delimiter: stands between values.
        columns: how many values a row has; 0: unknown.
    """
    mark = delimiter.encode()
    begin = re.compile(rb'(?:^|%s)"' % re.escape(mark))
    row, opened, like_rows = 0, 0, True
    with file.open("rb") as raw, gzip.open(raw) if file.suffix.lower() == ".gz" else raw as lines:
        for number, line in enumerate(lines, 1):
            at = 0
            while opened or b'"' in line:
                if opened:
                    end = _END.match(line, at)
                    if end is None:
                        like_rows &= number == opened or line.count(mark) == columns - 1
                        break
                    if number > opened:
                        yield Quoted(row, opened, number, like_rows and number > opened + 1)
                    opened, at = 0, end.end()
                found = begin.search(line, at)
                if found is None:
                    break
                opened, at, like_rows = number, found.end(), True
            if not opened and line.strip(b"\r\n"):  # pyarrow leaves empty lines out
                row += 1
    if opened:
        yield Quoted(row, opened, None)
