"""The files of a table: how each is read in batches of a bounded size.

The ending tells the format: .parquet; .arrow and .feather; .csv and .tsv, also .gz. A file with another ending is read
if it begins as a Parquet or an Arrow file does.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
import pyarrow.types as kinds
from numpy.typing import NDArray

from esd.data.paths import folder_values
from esd.data.remote import REQUEST_BYTES, DataFile, RemoteFile
from esd.data.tables.quotes import quoted_over_lines, swallows_rows
from esd.data.tables.text_reader import Ragged, TextReader
from esd.data.tables.text_stream import MAX_LINE_BYTES, SUBSTITUTE, TextStream
from esd.services.domain.errors import InvalidArgument

ROWS = 1 << 15  # of a batch
_VALUES = 1 << 22  # of a batch of a Parquet file, unless one row has more
_CSV_BYTES = MAX_LINE_BYTES  # of text that is parsed at once; a line is at most as long
_DELIMITERS = {".csv": ",;\t|", ".tsv": "\t"}  # that may stand between the values
_SHOWN = 40  # characters of a row
_MAGIC = {b"PAR1": ".parquet", b"ARRO": ".arrow"}  # the first four bytes of files with another ending
_ABSENT_TEXTS = ["", "#N/A", "N/A", "NA", "NULL", "NaN", "None", "nan", "null", "\\N"]  # in a column of numbers
_OTHERS = {b"\xff\xff\xff\xff": "an Arrow stream", b"FEA1": "Feather of version 1"}  # by their first four bytes
_HEADER_BYTES = 1 << 16  # in which these are told apart
_QUOTED = re.compile('"[^"]*"')  # a quote in a quoted value is doubled
_GZIP = b"\x1f\x8b"
_NO_TEXTS = {_GZIP: "compressed with gzip", b"PK\x03\x04": "a zip file or a workbook of a spreadsheet",
             b"BZh": "compressed with bzip2", b"\x28\xb5\x2f\xfd": "compressed with zstd"}  # fmt: skip
# By their marks; that of UTF-32 begins as that of UTF-16 does.
_ENCODINGS = {codecs.BOM_UTF32_LE: "UTF-32", codecs.BOM_UTF32_BE: "UTF-32",
              codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}  # fmt: skip
ENDINGS = (".parquet", ".arrow", ".feather", ".csv", ".tsv", ".csv.gz", ".tsv.gz")


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of a file.

    Attributes:
        batch: the rows, with the columns that were asked for.
        first: how many rows of the file come before them.
        place: their part of the file, if it has parts: `row group 3`.
        rows: where among the rows of the file from `first` on each one stands, int64 [n]; None: they follow each other.
        names: of each row; None: it has a number.
    """

    batch: pa.RecordBatch
    first: int
    place: str = ""
    rows: NDArray[np.int64] | None = None
    names: Sequence[str] | None = None

    def number(self, row: int) -> int:
        """Returns the number of a row in its file, from 1 on."""
        return self.first + 1 + (row if self.rows is None else int(self.rows[row]))

    def named(self, row: int) -> str:
        """Names a row for people."""
        return f"row {self.number(row)}{self.place}" if self.names is None else self.names[row]


@dataclass(frozen=True, slots=True)
class Outline:
    """The facts about a file that are known before it is read.

    Attributes:
        columns: its columns with their types, and the columns of its folders' names (`day=3`). In a file of texts, the
            types are inferred from the first megabytes; all of its values are texts.
        texts: names of the columns whose values are texts, of any type.
        empty: whether it has no rows.
        rows: how many it has; None if only reading it would tell.
    """

    columns: pa.Schema
    texts: frozenset[str]
    empty: bool
    rows: int | None = None


def is_text(file: DataFile) -> bool:
    """Tells whether a file's values are written as texts."""
    return _text_ending(file) in _DELIMITERS


def recognised(file: DataFile) -> bool:
    """Tells whether a file has the first bytes of a Parquet or an Arrow file."""
    with suppress(OSError), file.open("rb") as opened:
        return opened.read(4) in _MAGIC
    return False


def outline(file: DataFile) -> Outline:
    """Looks at a file: at its metadata, or at the first few megabytes of texts.

    Raises:
        InvalidArgument: the file is damaged, without any columns, or of another format than its ending says.
    """
    with _named(file):
        columns, empty, rows = _look(file)
        texts = set(columns.names) if is_text(file) else set()
        for name in folder_values(file):
            if name not in columns.names:
                columns = columns.append(pa.field(name, pa.string()))
                texts.add(name)
        return Outline(columns, frozenset(texts), empty, rows)


def _look(file: DataFile) -> tuple[pa.Schema, bool, int | None]:
    if is_text(file):
        found: list[str] = []
        options = pyarrow.csv.ConvertOptions(null_values=_ABSENT_TEXTS, strings_can_be_null=False)
        with _open_text(file, options, lambda number, wrong: found.append(f"row {number}: {wrong}")) as (reader, _):
            empty = not any(len(block) for block in reader)
            columns = reader.schema
        if empty and found:  # such as a header that has too few names
            raise InvalidArgument(f"data file {file}: {found[0]}")
        return columns, empty, None
    if _format(file) == ".parquet":
        with _source(file) as source:
            metadata = pyarrow.parquet.read_metadata(source)
        return metadata.schema.to_arrow_schema(), metadata.num_rows == 0, metadata.num_rows
    with _open_arrow(file, [0]) as (columns, reader):
        return columns, not any(len(reader.get_batch(at)) for at in range(reader.num_record_batches)), None


def _format(file: DataFile) -> str:
    """Returns the ending that a file's format has."""
    if file.name.lower().endswith(ENDINGS):
        return file.suffix.lower()
    with file.open("rb") as opened:
        return _MAGIC.get(opened.read(4), file.suffix)


def _left_out(_number: int, _wrong: str) -> None:
    """Leaves every ragged row out: the reader that makes samples of the file reports it."""


def pieces(
    file: DataFile, categories: Sequence[str], numbers: Sequence[str], ragged: Ragged = _left_out
) -> Iterator[Piece]:
    """Reads columns of a file, in the order of its rows, in pieces of at most `ROWS` rows.

    Args:
        file: the file; it has these columns, or its folders' names have them.
        categories: columns whose values are told apart.
        numbers: columns of numbers. All of a file of texts are texts, as they are written.
        ragged: see there.

    Raises:
        InvalidArgument: the file is damaged.
    """
    with _named(file):
        stated = _stated_by_folders(file, [*categories, *numbers])
        inside = [[name for name in names if name not in stated] for names in (categories, numbers)]
        if not any(inside):  # a column that tells how many rows there are
            inside[0] = _look(file)[0].names[:1]
        if is_text(file):
            found = _of_text(file, [*inside[0], *inside[1]], ragged)
        elif _format(file) == ".parquet":
            found = _of_parquet(file, *inside)
        else:
            found = _of_arrow(file, [*inside[0], *inside[1]])
        for piece in found:
            batch = piece.batch if is_text(file) else whole(piece.batch, numbers)
            for name, value in stated.items():
                batch = batch.append_column(name, pa.repeat(pa.scalar(value, pa.string()), len(batch)))
            yield replace(piece, batch=batch)


def _stated_by_folders(file: DataFile, columns: Sequence[str]) -> dict[str, str | None]:
    values = folder_values(file)
    wanted = [name for name in dict.fromkeys(columns) if name in values]
    present = _look(file)[0].names if wanted else ()
    return {name: values[name] for name in wanted if name not in present}


def whole(batch: pa.RecordBatch, numbers: Sequence[str]) -> pa.RecordBatch:
    """Returns a batch whose values were checked: offsets, places in dictionaries, UTF-8.

    A column without any value, which has no type of its own, becomes one of absent numbers or texts.

    Raises:
        pa.ArrowInvalid: it is damaged.
    """
    batch.validate(full=True)
    for at, field in enumerate(batch.schema):
        if kinds.is_null(field.type):
            kind = pa.float64() if field.name in numbers else pa.string()
            batch = batch.set_column(at, field.name, pa.nulls(len(batch), kind))
    return batch


def _of_parquet(file: DataFile, categories: Sequence[str], numbers: Sequence[str]) -> Iterator[Piece]:
    with _source(file) as source:
        yield from _of_open_parquet(source, categories, numbers, isinstance(file, RemoteFile))


def _of_open_parquet(
    source: pa.NativeFile, categories: Sequence[str], numbers: Sequence[str], remote: bool
) -> Iterator[Piece]:
    found = pyarrow.parquet.read_metadata(source)
    types = found.schema.to_arrow_schema()
    # A text that comes often is stored and hashed once.
    texts = [name for name in categories if kinds.is_string(types.field(name).type)]
    options = {"read_dictionary": texts, "pre_buffer": remote, "page_checksum_verification": True}
    columns = [*categories, *numbers]
    with pyarrow.parquet.ParquetFile(source, metadata=found, **options) as opened:
        first = 0
        for group in range(opened.num_row_groups):
            rows = _rows_at_once(found.row_group(group), set(columns))
            for batch in opened.iter_batches(rows, [group], columns, use_threads=False):
                yield Piece(batch, first, f" (row group {group})")
                first += len(batch)


def _rows_at_once(group: pyarrow.parquet.RowGroupMetaData, columns: set[str]) -> int:
    """Returns how many rows of a row group are read at once: at most `ROWS`, and fewer with many values in each."""
    chunks = map(group.column, range(group.num_columns))
    values: int = sum(each.num_values for each in chunks if each.path_in_schema.partition(".")[0] in columns)
    rows: int = group.num_rows
    return max(1, min(ROWS, _VALUES * rows // max(1, values)))


def _of_arrow(file: DataFile, columns: Sequence[str]) -> Iterator[Piece]:
    indices = list(map(_look(file)[0].get_field_index, columns))
    with _open_arrow(file, indices) as (_, reader):
        first = 0
        for index in range(reader.num_record_batches):
            for batch in sliced(reader.get_batch(index).select(columns)):
                yield Piece(batch, first, f" (record batch {index})")
                first += len(batch)


def _of_text(file: DataFile, columns: Sequence[str], ragged: Ragged) -> Iterator[Piece]:
    # Numbers are texts, too, so that one that is none is a mistake of its row, and not of the file.
    types = dict.fromkeys(columns, pa.string())
    options = pyarrow.csv.ConvertOptions(column_types=types, include_columns=list(types), strings_can_be_null=False)
    separator, names = delimiter(file), _look(file)[0].names
    first = 0
    left: list[int] = []  # rows from `first` on that are left out

    def leave(number: int, wrong: str) -> None:
        ragged(number, wrong)
        left.append(number - 1)

    with _open_text(file, options, leave, names) as (reader, stream):
        for block in reader:
            for batch in sliced(block):
                end = first + len(batch) + len(left)
                rows = np.delete(np.arange(first, end), [row - first for row in left if row < end])[: len(batch)]
                wrong = _wrong_texts(batch, stream, separator, len(names))
                for at, message in sorted(wrong.items()):
                    ragged(int(rows[at]) + 1, message)
                right = np.setdiff1d(np.arange(len(batch)), list(wrong))
                yield Piece(batch if not wrong else batch.take(pa.array(right)), 0, rows=rows[right])
                first = int(rows[-1]) + 1
                left = [row for row in left if row >= first]


def _wrong_texts(batch: pa.RecordBatch, stream: TextStream, separator: str, columns: int) -> dict[int, str]:
    """Returns a message for each row of a batch with a text that is damaged, or has swallowed other rows."""
    wrong: dict[int, str] = {}
    for name in batch.schema.names:
        texts = batch.column(name)
        if stream.substituted:
            for row in np.flatnonzero(pc.match_substring(texts, SUBSTITUTE).to_numpy(zero_copy_only=False)):
                shown = texts[int(row)].as_py().replace(SUBSTITUTE, "\ufffd")[:_SHOWN]
                wrong.setdefault(int(row), f"column {name!r}: expected a text in UTF-8, found {shown!r}")
        if stream.has_zeros:
            for row in np.flatnonzero(pc.match_substring(texts, "\0").to_numpy(zero_copy_only=False)):
                shown = texts[int(row)].as_py()[:_SHOWN]
                wrong.setdefault(int(row), f"column {name!r}: expected a text without zero bytes, found {shown!r}")
        if stream.quoted:
            for row in np.flatnonzero(pc.match_substring(texts, "\n").to_numpy(zero_copy_only=False)):
                text = texts[int(row)].as_py()
                if swallows_rows(text, separator, columns):
                    stream.reported += text.count("\n")
                    lines = text.count("\n") + 1
                    wrong.setdefault(int(row), f"column {name!r}: {lines} lines that look like rows stand in one quote")
    return wrong


def sliced(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yields a batch in slices of at most `ROWS` rows."""
    for start in range(0, len(batch), ROWS):
        yield batch.slice(start, ROWS)


@contextmanager
def _open_arrow(file: DataFile, columns: list[int]) -> Iterator[tuple[pa.Schema, pa.ipc.RecordBatchFileReader]]:
    """Opens a file for its columns of these numbers. Yields all of its columns, and the reader of these."""
    with _source(file) as source:
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
    file: DataFile, convert: pyarrow.csv.ConvertOptions, ragged: Ragged, names: Sequence[str] | None = None
) -> Iterator[tuple[TextReader, TextStream]]:
    separator = delimiter(file)
    refused: list[tuple[int, InvalidArgument]] = []

    def reported(number: int, wrong: str) -> None:
        try:
            ragged(number, wrong)
        except InvalidArgument as error:
            refused.append((number, error))
            raise

    try:
        with _unpacked(file) as source:
            stream = TextStream(source, file)
            reader = TextReader(stream, separator, convert, reported, _CSV_BYTES, names)
            if stream.substituted and any(SUBSTITUTE in name for name in reader.schema.names):
                raise InvalidArgument(f"data file {file} is not UTF-8, as its header shows: convert it (iconv)")
            yield reader, stream
    except pa.ArrowInvalid:
        if refused:
            number, error = refused[0]
            of_row = [each for each in quoted_over_lines(file, separator) if each.row == number]
            raise InvalidArgument("; ".join(map(str, [error, *of_row]))) from None
        _check_quotes(file, separator)
        raise
    if stream.one_may_be_open:
        _check_quotes(file, separator)
    if reader.ended and stream.quoted and stream.total_lines > reader.rows + reader.left_out + 1 + stream.reported:
        _check_swallowed(file, separator, len(names or reader.schema))


def _check_quotes(file: DataFile, separator: str) -> None:
    """Refuses a file with a quote that is not closed: the rest of the file would be a part of its value."""
    for each in quoted_over_lines(file, separator):
        if each.end is None:
            raise InvalidArgument(f"data file {file}: {each}")


def _check_swallowed(file: DataFile, separator: str, columns: int) -> None:
    """Refuses a file with rows inside a value of a column that is not read."""
    for each in quoted_over_lines(file, separator, columns):
        if each.swallows_rows:
            raise InvalidArgument(f"data file {file}: {each}, and the lines between look like rows")


def delimiter(file: DataFile) -> str:
    """Returns the delimiter of a file of texts: the one that parts its header into the most columns."""
    if _is_packed(file):
        _expect_gzip(file)
    with _unpacked(file) as source:
        content = source.read(_HEADER_BYTES)
    for mark, encoding in _ENCODINGS.items():
        if content.startswith(mark):
            raise InvalidArgument(f"data file {file} is written in {encoding}: convert it to UTF-8, which is read")
    for beginning, kind in _NO_TEXTS.items():
        if content.startswith(beginning):
            raise InvalidArgument(f"data file {file} is {kind}, not a file of texts as its ending says")
    if b"\0" in content.partition(b"\n")[0]:
        raise InvalidArgument(f"data file {file} has zero bytes in its header: it is binary, or written in UTF-16")
    text = content.decode(errors="replace")
    header = re.split("[\r\n]", _QUOTED.sub("", text), maxsplit=1)[0]
    return max(_DELIMITERS[_text_ending(file)], key=header.count)


def _source(file: DataFile) -> pa.NativeFile:
    # Without a memory map: a process dies (SIGBUS) that reads in the map of a file which is cut meanwhile.
    return file.source() if isinstance(file, RemoteFile) else pa.OSFile(str(file))


def _unpacked(file: DataFile) -> pa.NativeFile:
    source = _source(file)
    if isinstance(file, RemoteFile):
        source = pa.BufferedInputStream(source, REQUEST_BYTES)
    return pa.CompressedInputStream(source, "gzip") if _is_packed(file) else source


def _is_packed(file: DataFile) -> bool:
    return file.suffix.lower() == ".gz"


def _expect_gzip(file: DataFile) -> None:
    with file.open("rb") as opened:
        start = opened.read(4)
    kind = next((kind for beginning, kind in _NO_TEXTS.items() if start.startswith(beginning)), "not compressed")
    if start and not start.startswith(_GZIP):
        raise InvalidArgument(f"data file {file} is {kind}, and its ending .gz says that it is compressed with gzip")


def _text_ending(file: DataFile) -> str:
    return Path(file.name.lower().removesuffix(".gz")).suffix


@contextmanager
def _named(file: DataFile) -> Iterator[None]:
    """Gives pyarrow's errors the name of the file, and finds out when that was cut, which no reader of texts tells."""
    cut = ""
    try:
        before = None if isinstance(file, RemoteFile) else file.stat()
        try:
            yield
        finally:
            cut = _cut(file, before)
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"data file {file} is not UTF-8: {error}") from error
    except (pa.ArrowException, OSError, ValueError, IndexError) as error:
        raise InvalidArgument(f"data file {file} cannot be read: {cut or error}") from error
    except InvalidArgument:
        if not cut:  # else the last row has fewer values for this reason
            raise
    if cut:
        raise InvalidArgument(f"data file {file} cannot be read: {cut}")


def _cut(file: DataFile, before: os.stat_result | None) -> str:
    """Describes the loss of a file that was cut; empty: it was not, as a remote one, or another is in its place."""
    if isinstance(file, RemoteFile) or before is None:
        return ""
    now = file.stat() if file.exists() else before
    if not os.path.samestat(now, before) or now.st_size >= before.st_size:
        return ""
    return f"it had {before.st_size} bytes and has {now.st_size}: it was cut while it was read"
