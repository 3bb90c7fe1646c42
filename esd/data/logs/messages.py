"""Messages of a log become rows of a table.

A message is a JSON object with the columns of the schema, or an Arrow stream of many rows. An entry of a Redis stream
has its columns as fields, with texts as a CSV file has them; or one field, `json` or `arrow`, with such a message.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from esd.data.logs.log import Message
from esd.data.schema import IdList, Schema
from esd.data.tables.cleaned import Cleaned
from esd.data.tables.columns import check_types
from esd.data.tables.files import Piece, whole
from esd.services.domain.errors import InvalidArgument

_ARROW = b"\xff\xff\xff\xff"  # the beginning of an Arrow stream, and of no text
_EXACT = 2**53  # up to here a float tells whole numbers apart
_SHOWN = 40  # characters of a value


class MessageReader:
    """Makes rows of messages.

    Args:
        schema: names the columns.
        numbers: the columns of numbers; labels are among them if messages have some.
        cleaned: takes note of the messages that are no samples.
        source: names the log.
    """

    def __init__(self, schema: Schema, numbers: list[str], cleaned: Cleaned, source: str, *, labelled: bool) -> None:
        self._schema = schema
        self._numbers = numbers
        self._columns = list(dict.fromkeys([*schema.categories, *numbers, *cleaned.besides]))
        self._separators = {each.column: each.separator for each in schema.id_columns if isinstance(each, IdList)}
        self._cleaned = cleaned
        self._source = source
        self._labelled = labelled
        self._known: pa.Schema | None = None  # of an Arrow message whose types were checked

    def pieces(self, messages: Iterable[Message]) -> Iterator[Piece]:
        """Yields the rows of messages, in order; JSON objects in a row come together.

        Raises:
            InvalidArgument: a message is malformed, and no more may be skipped.
        """
        rows: list[list[Any]] = []
        names: list[str] = []
        for message in messages:
            try:
                found = self._read(message.value)
            except (ValueError, OSError, pa.ArrowException, InvalidArgument) as error:
                self._cleaned.skip(f"{self._source}: message {message.name}: {error}")
                continue
            if isinstance(found, list):
                rows.append(found)
                names.append(f"message {message.name}")
                continue
            yield from self._together(rows, names)
            rows, names = [], []
            yield Piece(found, 0, f" of message {message.name}")
        yield from self._together(rows, names)

    def _together(self, rows: list[list[Any]], names: list[str]) -> Iterator[Piece]:
        if not rows:
            return
        columns = zip(*rows, strict=True)
        arrays = [pa.array(column, self._type(name)) for name, column in zip(self._columns, columns, strict=True)]
        yield Piece(pa.record_batch(arrays, self._columns), 0, names=names)

    def _type(self, column: str) -> pa.DataType:
        return pa.list_(pa.string()) if column in self._separators else pa.string()

    def _read(self, value: bytes | Mapping[bytes, bytes]) -> list[Any] | pa.RecordBatch:
        """Returns the values of a row, or the rows of an Arrow stream.

        Raises:
            ValueError, OSError, pa.ArrowException, InvalidArgument: the message is malformed.
        """
        if not isinstance(value, bytes):
            if len(value) != 1 or not value.keys() <= {b"json", b"arrow"}:
                return self._row({name.decode(): text.decode() for name, text in value.items()})
            (value,) = value.values()
        if value.startswith(_ARROW):
            return self._rows(value)
        found = json.loads(value, parse_constant=_refuse)
        if not isinstance(found, dict):
            raise ValueError(f"expected a JSON object, found {value[:_SHOWN]!r}")
        return self._row(found)

    def _row(self, found: Mapping[str, Any]) -> list[Any]:
        missing = next((name for name in self._columns if name not in found), None)
        if missing is not None:
            raise ValueError(f"it has no {missing!r}, only {', '.join(map(repr, found))[:200]}")
        return [self._value(name, found[name]) for name in self._columns]

    def _value(self, name: str, value: Any) -> str | Sequence[str | None] | None:
        if name not in self._separators:
            return _text(name, value)
        if isinstance(value, list):
            return [_text(name, each) for each in value]
        text = _text(name, value)
        return text.split(self._separators[name]) if text else []

    def _rows(self, value: bytes) -> pa.RecordBatch:
        with pa.ipc.open_stream(value) as stream:
            table = stream.read_all()
        if table.schema != self._known:
            check_types(self._schema, table.schema, "its Arrow stream", labelled=self._labelled)
            self._known = table.schema
        batches = table.select(self._columns).combine_chunks().to_batches()
        if not batches:
            raise ValueError("its Arrow stream has no rows")
        return whole(batches[0], self._numbers)


def _text(name: str, value: Any) -> str | None:
    """Returns a value of JSON as a CSV file has it, so that equal ones have equal ids wherever they come from."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT:
        return str(int(value))
    if isinstance(value, int | float):
        return repr(value)
    raise ValueError(f"column {name!r}: expected a text or a number, found {json.dumps(value)[:_SHOWN]}")


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
