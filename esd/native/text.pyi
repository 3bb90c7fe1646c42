"""A parser of delimited text into columns, ids of columns, and the number of distinct ids, all without the GIL."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

class Parser:
    """Parses lines of delimited text into hashed ids and numbers. It is immutable and safe to share between threads."""

    def __init__(
        self,
        columns: Sequence[tuple[str, bool, int]],
        delimiter: str,
        *,
        quoted: bool,
        missing: str,
        max_line_bytes: int,
    ) -> None:
        """Fixes the format.

        Args:
            columns: kind, optional and field key of every column, in file order. A kind is `skip`; `id`, which is
                hashed with the field key (esd/data/hashing.py); `integer`, within +-2^53; `decimal`, finite as
                float32 and no smaller than float64 can tell from 0; or `flag`, 0 or 1. An optional number may be
                absent.
            delimiter: one or two bytes.
            quoted: whether fields may be in double quotes, with "" for a quote; a quoted field must end on its own
                line.
            missing: text of an absent number, in addition to an empty field.
            max_line_bytes: the most bytes of a line; a longer line is not a record.

        Raises:
            ValueError: a kind is unknown, or the delimiter is not one or two bytes.
        """

    def parse(
        self, text: bytes, bad_allowed: int
    ) -> tuple[NDArray[np.uint64], NDArray[np.float64], int, list[tuple[int, int, str, bytes | None]]]:
        """Parses whole lines, which end in LF or CRLF; the last one may lack its end.

        Lines that are not records are left out and reported. Parsing stops after `bad_allowed` + 1 of them.

        Returns:
            ids: uint64 [n, id columns], in file order.
            numbers: float64 [n, number columns], in file order; an absent number is NaN.
            lines: number of lines read.
            mistakes: for each line that is not a record, its number (from 0 in this text), the column (from 1, or 0 for
                the whole line), the expected form, and the first 40 bytes found, or None at the end of the line.
        """

def hash_texts(
    field_key: int, offsets: NDArray[np.int32] | NDArray[np.int64], text: NDArray[np.uint8]
) -> NDArray[np.uint64]:
    """Returns the ids of n texts, uint64 [n] (esd/data/hashing.py).

    Args:
        field_key: key of the field.
        offsets: [n + 1]; text i has the bytes from offsets[i] to offsets[i + 1].
        text: uint8 [b].

    Raises:
        ValueError: the offsets do not ascend, or lie outside the text.
    """

def hash_integers(field_key: int, values: NDArray[np.int64] | NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns the ids of integers, uint64 [n]: the id of an integer is the id of its decimal digits as a text."""

def whole_records(text: bytes, delimiter: str) -> int:
    """Returns how many bytes the whole records at the beginning of a text of a CSV file have.

    A record ends with its line (LF, CR LF or CR); a quoted value may have the ends of lines in it. A quote opens a
    value at its beginning alone, and is doubled inside of it, as pyarrow reads it.

    Args:
        text: begins with a record.
        delimiter: between two values, one byte.

    Raises:
        ValueError: the delimiter is not one byte.
    """

class DistinctIds:
    """Counts the distinct ids among all added ones, exactly, with about 20 bytes of memory per distinct id."""

    def __init__(self) -> None: ...
    def add(self, ids: NDArray[np.uint64]) -> None:
        """Adds ids, uint64 [r], contiguous."""

    def __len__(self) -> int:
        """Returns the number of distinct ids so far."""

class IdSample:
    """A sample of the distinct ids of each table, with the last iteration of each: 1 MiB per table at most.

    Ids are chosen by their hashes (Wegman's adaptive sampling: Flajolet, Computing 1990): all, until a table has more
    than 32,768 distinct ones, then half of them, and half again whenever the sample is full. So numbers of distinct ids
    are exact at first, and then have a standard error of 0.8% at most for any number. The data of a sampled id are
    exact, since it is in the sample from its first occurrence on.
    """

    def __init__(self, tables: int) -> None:
        """Starts without ids. Raises ValueError unless there are 1 to 256 tables."""

    def add(self, ids: NDArray[np.uint64], iteration: int) -> None:
        """Adds the ids of an iteration, uint64 [r], contiguous. Iterations do not fall.

        Raises:
            ValueError: an id names a table that does not exist; with several, the top 8 bits of an id are its table.
                The ids before it are added.
        """

    def counts(self, since: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Returns for each table how many sampled ids some iteration from `since` on had, uint64 [tables].

        Args:
            since: uint64 [tables], an iteration for each table; 0 for all ids.

        Raises:
            ValueError: `since` has not as many entries as there are tables.
        """

    @property
    def shares(self) -> NDArray[np.float64]:
        """The share of each table's ids that is sampled, float64 [tables]: 1, 1/2, 1/4 and so on."""
