"""The rows of a file of texts, parsed by pyarrow block by block, each of whole records.

pyarrow's own readers of streams call Python from a thread that reads ahead, which aborts a process that ends meanwhile.
Here the calling thread reads, and pyarrow gets blocks that are in its own memory.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa
import pyarrow.csv

from esd.data.tables.text_stream import TextStream
from esd.native import text as native
from esd.services.domain.errors import InvalidArgument

_SHOWN = 40  # characters of a row

# Told of a row with more or fewer values than the header: its number, from 1 on, and what is wrong. The row is left
# out, unless this raises InvalidArgument.
Ragged: TypeAlias = Callable[[int, str], None]


class TextReader:
    """The rows of a file of texts, in a batch for each block. The header and the first block are read at once.

    Args:
        stream: the file.
        delimiter: between two values, one byte.
        convert: the columns, and their types.
        ragged: see there.
        block_bytes: of text that is parsed at once; a record may have twice as many.
        names: all columns of the header; None: `convert` leaves none of them out.

    Attributes:
        schema: the columns, with types that are inferred from the first block where none are given.
        rows: how many rows were read.
        left_out: how many rows were left out.
        ended: whether the end was read.

    Raises:
        InvalidArgument: a line is too long.
        pa.ArrowInvalid: the file has no header, a row was refused or is too long, or a value is not of its column's
            type.
    """

    def __init__(
        self,
        stream: TextStream,
        delimiter: str,
        convert: pyarrow.csv.ConvertOptions,
        ragged: Ragged,
        block_bytes: int,
        names: Sequence[str] | None = None,
    ) -> None:
        self._delimiter = delimiter
        self._convert = convert
        self._ragged = ragged
        self._blocks = _blocks(stream, delimiter, block_bytes)
        self._names = names
        self._headed = False  # whether the header is read
        self.rows = self.left_out = 0
        self.ended = False
        first = self._parse(next(self._blocks, b""))
        self.schema, self._first = first.schema, first.to_batches()
        self._names = self._names or first.column_names

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield from self._first
        self._first = []
        for block in self._blocks:
            yield from self._parse(block).to_batches()
        self.ended = True

    def _parse(self, block: bytes) -> pa.Table:
        before = self.rows + self.left_out - (not self._headed)  # the header has a number, too

        def invalid(row: pyarrow.csv.InvalidRow) -> str:
            number = before + row.number
            try:
                self._ragged(
                    number,
                    f"expected {row.expected_columns} values, found {row.actual_columns}: {row.text[:_SHOWN]!r}",
                )
            except InvalidArgument:
                return "error"
            self.left_out += 1
            return "skip"

        with pa.BufferOutputStream() as copy:  # in pyarrow's memory: its threads need no interpreter to free it
            if self._headed and block.startswith(codecs.BOM_UTF8):
                copy.write(b"\n")  # such a mark is a part of the value, unless it begins the file
            copy.write(block)
            buffer = copy.getvalue()
        table = pyarrow.csv.read_csv(
            pa.BufferReader(buffer),
            pyarrow.csv.ReadOptions(
                use_threads=False, block_size=buffer.size + 1, column_names=self._names if self._headed else None
            ),
            # A quoted value may have the ends of lines in it.
            pyarrow.csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True, invalid_row_handler=invalid),
            self._convert,
        )
        self._headed = True
        self.rows += len(table)
        return table


def _blocks(stream: TextStream, delimiter: str, block_bytes: int) -> Iterator[bytes]:
    """Yields the text in blocks of whole records; the last record may lack its end."""
    rest = b""
    while found := stream.read(block_bytes):
        text = rest + found
        end = native.whole_records(text, delimiter)
        if end:
            yield text[:end]
        rest = text[end:]
        if len(rest) > 2 * block_bytes:
            raise pa.ArrowInvalid(f"a row has more than {2 * block_bytes:,} bytes, which no row of a table has")
    if rest:
        yield rest
