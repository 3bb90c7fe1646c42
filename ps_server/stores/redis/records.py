"""A row as a part of a field of a hash in Redis.

The address of a row is mix64(id), which no other id has, as 8 bytes from the lowest to the highest:

    byte 0       the hash: the partition in its lower 6 bits, the quarter in the upper 2
    bytes 1..6   the field
    byte 7       the first byte of the row's record, which tells the rows of one field apart

A record has 8 + 4 W bytes, or 12 + 4 W if its version has more than 23 bits:

    uint32       last byte of the address; the lower 23 bits of the version; 1 bit: the version goes on
    uint32       the next 32 bits of the version, if it goes on
    float32 [W]  the row
    uint32       checksum over id, version and row

The value of a field is the records of all rows that have the field. That is one almost always: in a table of 100
million rows, two rows share a field with a probability of 2%. The last byte of the address is in the record because
Redis' allocator gives 8 bytes to a name of 6 bytes and its header, and 16 to a longer one. A row of 68 bytes at a small
version fills 80 bytes exactly, header included.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from esd.native import rows as native
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.rows import RowBlock

FIELD_BYTES = 6
NAME_BYTES = 7  # a row's name is its field and the last byte of its address
HEAD_BYTES = 8  # of a record, in which its version is


def short_record_bytes(width: int) -> int:
    """Returns the bytes of a record of `width` floats at a small version."""
    return 8 + 4 * width


def decoded(ids: NDArray[np.uint64], values: list[bytes | None], width: int) -> RowBlock:
    """Returns rows of `width` floats from the values of their fields; zeros at version 0 where a row is absent.

    Raises:
        FailedPrecondition: a record has changed since it was written.
    """
    versions, rows, damaged = native.decode_records(ids, values, width)
    _check(damaged)
    return RowBlock(ids, versions, rows)


def decoded_hash(place: int, fields: list[bytes], values: list[bytes], width: int) -> RowBlock:
    """Returns all rows in fields of the hash at one place. Raises FailedPrecondition as `decoded` does."""
    _check_lengths(fields, FIELD_BYTES)
    ids, versions, rows, damaged = native.split_records(place, fields, values, width)
    _check(damaged)
    return RowBlock(ids, versions, rows)


def ids_of(place: int, names: list[bytes]) -> NDArray[np.uint64]:
    """Returns the ids of names in the hash at one place. Raises FailedPrecondition if a name is damaged."""
    _check_lengths(names, NAME_BYTES)
    return native.ids_at(place, names)


def ids_of_fields(place: int, fields: list[bytes]) -> NDArray[np.uint64]:
    """Returns an id for each field of the hash at one place. Raises FailedPrecondition if a field is damaged."""
    _check_lengths(fields, FIELD_BYTES)
    return native.ids_at(place, [field + b"\0" for field in fields])


def versions_of(heads: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Returns versions, int64 [r], from the first bytes of their records, [r, 8]; zeros are version 0."""
    words = heads.view("<u4")
    low, more = words[:, 0].astype(np.int64), words[:, 1].astype(np.int64)
    return (low >> 8 & 0x7FFFFF) | np.where(low >> 31, more << 23, 0)


def _check_lengths(texts: list[bytes], length: int) -> None:
    odd = next((text for text in texts if len(text) != length), None)
    if odd is not None:
        raise FailedPrecondition(f"a hash of rows in Redis has a field {odd[:40]!r}, which no row has: it is damaged")


def _check(damaged: NDArray[np.uint64]) -> None:
    if len(damaged):
        raise FailedPrecondition(f"row {damaged[0]} in Redis is damaged: its checksum differs")
