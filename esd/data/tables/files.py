"""The files of a table: how each is read in batches of a bounded size.

The ending tells the format: .parquet; .arrow and .feather; .csv and .tsv, also .gz.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pyarrow.types as kinds
from numpy.typing import NDArray

from esd.data.tables.quotes import CountingQuotes, quoted_over_lines
from esd.services.domain.errors import InvalidArgument

ROWS = 1 << 15  # of a batch
_CSV_BYTES = 1 << 22  # of text that is parsed at once
_DELIMITERS = {".csv": ",;\t|", ".tsv": "\t"}  # that may stand between the values
_SHOWN = 40  # characters of a row
_OTHERS = {b"\xff\xff\xff\xff": "an Arrow stream", b"FEA1": "Feather of version 1"}  # by their first four bytes
_HEADER_BYTES = 1 << 16  # in which these are told apart
_QUOTED = re.compile('"[^"]*"')  # a quote in a quoted value is doubled
# Told of a row of a file of texts that has more or fewer values than the header: its number, from 1 on, and what is
# wrong. The row is left out, unless this raises InvalidArgument.
Ragged = Callable[[int, str], None]
ENDINGS = (".parquet", ".arrow", ".feather", ".csv", ".tsv", ".csv.gz", ".tsv.gz")


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of a file.

    Attributes:
        batch: the rows, with the columns that were asked for.
        first: how many rows of the file come before them.
        place: what of the file they are in, if it has parts: `row group 3`.
        rows: where among the rows of the file from `first` on each one stands, int64 [n]; None: they follow each other.
    """

    batch: pa.RecordBatch
    first: int
    place: str = ""
    rows: NDArray[np.int64] | None = None

    def number(self, row: int) -> int:
        """Returns the number of a row in its file, from 1 on."""
        return self.first + 1 + (row if self.rows is None else int(self.rows[row]))


def is_text(file: Path) -> bool:
    """Tells whether a file's values are texts, whatever they mean."""
    return _text_ending(file) in _DELIMITERS


def column_types(file: Path) -> pa.Schema:
    """Returns the columns of a file with their types, as `outline` does."""
    return outline(file)[0]


def outline(file: Path) -> tuple[pa.Schema, bool]:
    """Returns the columns of a file with their types, and whether it has no rows.

    The columns of text files are texts, which may be numbers. Of such a file this takes the first few megabytes.

    Raises:
        InvalidArgument: the file is damaged, without any columns, or of another format than its ending says.
    """
    with _named(file):
        if is_text(file):
            found: list[str] = []
            options = pyarrow.csv.ConvertOptions(strings_can_be_null=False)
            with _open_text(file, options, lambda number, wrong: found.append(f"row {number}: {wrong}")) as reader:
                empty = not any(len(block) for block in reader)
            if empty and found:  # such as a header that has too few names
                raise InvalidArgument(f"data file {file}: {found[0]}")
            return reader.schema, empty
        if file.suffix == ".parquet":
            with pyarrow.parquet.ParquetFile(file) as opened:
                return opened.schema_arrow, opened.metadata.num_rows == 0
        with _open_arrow(file, [0]) as (found, reader):
            return found, not any(len(reader.get_batch(at)) for at in range(reader.num_record_batches))


def row_count(file: Path) -> int | None:
    """Returns the rows of a file, None if it is to be read to know.

    Raises:
        InvalidArgument: the file is damaged.
    """
    if file.suffix != ".parquet":
        return None
    with _named(file):
        rows: int = pyarrow.parquet.read_metadata(file).num_rows
        return rows


def _left_out(_number: int, _wrong: str) -> None:
    """Leaves every ragged row out: whoever makes samples of the file is told of it."""


def pieces(
    file: Path, categories: Sequence[str], numbers: Sequence[str], ragged: Ragged = _left_out
) -> Iterator[Piece]:
    """Reads columns of a file, in the order of its rows, in pieces of at most `ROWS` rows.

    Args:
        file: the file, which has these columns.
        categories: columns whose values are told apart.
        numbers: columns of numbers. All of a file of texts are texts, as they are written.
        ragged: see there.

    Raises:
        InvalidArgument: the file is damaged.
    """
    with _named(file):
        if is_text(file):
            yield from _of_text(file, [*categories, *numbers], ragged)
        elif file.suffix == ".parquet":
            yield from _of_parquet(file, categories, numbers)
        else:
            yield from _of_arrow(file, [*categories, *numbers])


def _of_parquet(file: Path, categories: Sequence[str], numbers: Sequence[str]) -> Iterator[Piece]:
    types = pyarrow.parquet.read_schema(file)
    # A text that comes often is stored and hashed once.
    texts = [name for name in categories if kinds.is_string(types.field(name).type)]
    with pyarrow.parquet.ParquetFile(file, read_dictionary=texts, pre_buffer=False) as opened:
        first = 0
        for group in range(opened.num_row_groups):
            for batch in opened.iter_batches(ROWS, [group], [*categories, *numbers], use_threads=False):
                yield Piece(batch, first, f" (row group {group})")
                first += len(batch)


def _of_arrow(file: Path, columns: Sequence[str]) -> Iterator[Piece]:
    indices = list(map(column_types(file).get_field_index, columns))
    with _open_arrow(file, indices) as (_, reader):
        first = 0
        for index in range(reader.num_record_batches):
            for batch in sliced(reader.get_batch(index).select(columns)):
                yield Piece(batch, first, f" (record batch {index})")
                first += len(batch)


def _of_text(file: Path, columns: Sequence[str], ragged: Ragged) -> Iterator[Piece]:
    # Numbers are texts, too, so that one that is none is a mistake of its row, and not of the file.
    types = dict.fromkeys(columns, pa.string())
    options = pyarrow.csv.ConvertOptions(column_types=types, include_columns=list(types), strings_can_be_null=False)
    first = 0
    left: list[int] = []  # rows from `first` on that are left out

    def leave(number: int, wrong: str) -> None:
        ragged(number, wrong)
        left.append(number - 1)

    with _open_text(file, options, leave) as reader:
        for block in reader:
            for batch in sliced(block):
                end = first + len(batch) + len(left)
                rows = np.delete(np.arange(first, end), [row - first for row in left if row < end])[: len(batch)]
                yield Piece(batch, 0, rows=rows)
                first = int(rows[-1]) + 1
                left = [row for row in left if row >= first]


def sliced(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yields a batch in slices of at most `ROWS` rows."""
    for start in range(0, len(batch), ROWS):
        yield batch.slice(start, ROWS)


@contextmanager
def _open_arrow(file: Path, columns: list[int]) -> Iterator[tuple[pa.Schema, pa.ipc.RecordBatchFileReader]]:
    """Opens a file for its columns of these numbers. Yields all that it has, and what reads these."""
    # Without a memory map: a process dies (SIGBUS) that reads in the map of a file which is cut meanwhile.
    with pa.OSFile(str(file)) as source:
        start = source.read(4)
        if start in _OTHERS:
            raise InvalidArgument(
                f"data file {file} is {_OTHERS[start]}: write it as an Arrow file (pyarrow.ipc.new_file)"
            )
        with pa.ipc.open_file(source) as reader:
            found = reader.schema
        options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=columns)
        with pa.ipc.open_file(source, options=options) as reader:
            yield found, reader


@contextmanager
def _open_text(
    file: Path, convert: pyarrow.csv.ConvertOptions, ragged: Ragged
) -> Iterator[pyarrow.csv.CSVStreamingReader]:
    refused: list[tuple[int, InvalidArgument]] = []

    def invalid(row: pyarrow.csv.InvalidRow) -> str:
        wrong = f"expected {row.expected_columns} values, found {row.actual_columns}: {row.text[:_SHOWN]!r}"
        try:
            ragged(row.number - 1, wrong)  # pyarrow counts the header
        except InvalidArgument as error:
            refused.append((row.number - 1, error))
            return "error"
        return "skip"

    # A quoted value may have the ends of lines in it, and one of them may be the last in its block.
    separator = delimiter(file)
    parse = pyarrow.csv.ParseOptions(delimiter=separator, newlines_in_values=True, invalid_row_handler=invalid)
    read = pyarrow.csv.ReadOptions(use_threads=False, block_size=_CSV_BYTES)
    try:
        with (
            pa.input_stream(str(file), compression="detect") as source,
            pa.PythonFile(counting := CountingQuotes(source), mode="r") as counted,
            pyarrow.csv.open_csv(counted, read, parse, convert) as reader,
        ):
            yield reader
    except pa.ArrowInvalid:
        if refused:
            number, error = refused[0]
            of_row = [each for each in quoted_over_lines(file, separator) if each.row == number]
            raise InvalidArgument("; ".join(map(str, [error, *of_row]))) from None
        _check_quotes(file, separator)
        raise
    if counting.one_may_be_open:
        _check_quotes(file, separator)


def _check_quotes(file: Path, separator: str) -> None:
    """Refuses a file with a quote that is not closed: what follows it would be a part of its value."""
    for each in quoted_over_lines(file, separator):
        if each.end is None:
            raise InvalidArgument(f"data file {file}: {each}")


def delimiter(file: Path) -> str:
    """Returns what stands between the values of a file of texts: that which parts its header into the most columns."""
    with pa.input_stream(str(file), compression="detect") as source:
        content = source.read(_HEADER_BYTES)
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise InvalidArgument(f"data file {file} is written in UTF-16: convert it to UTF-8, which is read")
    text = content.decode(errors="replace")
    header = re.split("[\r\n]", _QUOTED.sub("", text), maxsplit=1)[0]
    return max(_DELIMITERS[_text_ending(file)], key=header.count)


def _text_ending(file: Path) -> str:
    return Path(file.name.removesuffix(".gz")).suffix


@contextmanager
def _named(file: Path) -> Iterator[None]:
    """Gives pyarrow's errors the name of the file, and finds out when that was cut, which no reader of texts tells."""
    cut = ""
    try:
        before = file.stat()
        try:
            yield
        finally:
            cut = _cut(file, before)
    except (pa.ArrowException, OSError) as error:
        raise InvalidArgument(f"data file {file} cannot be read: {cut or error}") from error
    except InvalidArgument:
        if not cut:  # else the last row has fewer values for this reason
            raise
    if cut:
        raise InvalidArgument(f"data file {file} cannot be read: {cut}")


def _cut(file: Path, before: os.stat_result) -> str:
    """Says what a file has lost since; nothing if it has not, or if another one is in its place."""
    now = file.stat() if file.exists() else before
    if not os.path.samestat(now, before) or now.st_size >= before.st_size:
        return ""
    return f"it had {before.st_size} bytes and has {now.st_size}: it was cut while it was read"
