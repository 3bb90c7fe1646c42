"""The files of a table: how each is read in batches of a bounded size.

The ending tells the format: .parquet; .arrow and .feather; .csv and .tsv, also .gz.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pyarrow.types as kinds
from numpy.typing import NDArray

from services.domain.errors import InvalidArgument

ROWS = 1 << 15  # of a batch
_CSV_BYTES = 1 << 22  # of text that is parsed at once
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
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
    return _delimiter(file) is not None


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
            with _open_text(file, pyarrow.csv.ConvertOptions(strings_can_be_null=False)) as reader:
                return reader.schema, not any(len(block) for block in reader)
        if file.suffix == ".parquet":
            with pyarrow.parquet.ParquetFile(file) as opened:
                return opened.schema_arrow, opened.metadata.num_rows == 0
        with pa.memory_map(str(file)) as source, pa.ipc.open_file(source) as reader:
            return reader.schema, not any(len(reader.get_batch(at)) for at in range(reader.num_record_batches))


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


def pieces(file: Path, categories: Sequence[str], numbers: Sequence[str]) -> Iterator[Piece]:
    """Reads columns of a file, in the order of its rows, in pieces of at most `ROWS` rows.

    Args:
        file: the file, which has these columns.
        categories: columns whose values are told apart. Those of a file of texts are taken as they are written.
        numbers: columns of numbers.

    Raises:
        InvalidArgument: the file is damaged, or a text is no number where one is needed.
    """
    with _named(file):
        if is_text(file):
            yield from _of_text(file, categories, numbers)
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
    with pa.memory_map(str(file)) as source, pa.ipc.open_file(source) as reader:
        first = 0
        for index in range(reader.num_record_batches):
            for batch in sliced(reader.get_batch(index).select(columns)):
                yield Piece(batch, first, f" (record batch {index})")
                first += len(batch)


def _of_text(file: Path, categories: Sequence[str], numbers: Sequence[str]) -> Iterator[Piece]:
    found = column_types(file)
    types = dict.fromkeys(categories, pa.string())
    for name in numbers:  # true and false are numbers, too
        types[name] = pa.bool_() if kinds.is_boolean(found.field(name).type) else pa.float64()
    options = pyarrow.csv.ConvertOptions(column_types=types, include_columns=list(types), strings_can_be_null=False)
    first, size = 0, file.stat().st_size
    with _open_text(file, options) as reader:
        for block in reader:
            for batch in sliced(block):
                yield Piece(batch, first)
                first += len(batch)
    if file.stat().st_size < size:
        raise OSError(f"it had {size} bytes and has {file.stat().st_size}: it was cut while it was read")


def sliced(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yields a batch in slices of at most `ROWS` rows."""
    for start in range(0, len(batch), ROWS):
        yield batch.slice(start, ROWS)


@contextmanager
def _open_text(file: Path, convert: pyarrow.csv.ConvertOptions) -> Iterator[pyarrow.csv.CSVStreamingReader]:
    # A quoted value may have the ends of lines in it, and one of them may be the last in its block.
    parse = pyarrow.csv.ParseOptions(delimiter=_delimiter(file), newlines_in_values=True)
    read = pyarrow.csv.ReadOptions(use_threads=False, block_size=_CSV_BYTES)
    with (
        pa.input_stream(str(file), compression="detect") as source,
        pyarrow.csv.open_csv(source, read, parse, convert) as reader,
    ):
        yield reader


def _delimiter(file: Path) -> str | None:
    return _DELIMITERS.get(Path(file.name.removesuffix(".gz")).suffix)


@contextmanager
def _named(file: Path) -> Iterator[None]:
    """Gives pyarrow's errors the name of the file."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise InvalidArgument(f"data file {file} cannot be read: {error}") from error
