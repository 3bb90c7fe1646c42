"""Rows of unequal size (ESD §8.2): every field of a sample is a table of its own, with its own dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from services.domain.errors import InvalidArgument
from services.domain.tables import TableSpec

_LARGEST = 0xFFFF  # units that the engine counts a row with


class RowSizes:
    """D_tran(x) by field, in whole units.

    Attributes:
        unit_bytes: bytes of one unit: the greatest common divisor of the rows' sizes on the wire.
        of_fields: size of each field's rows in units, [F]; empty when all rows have the table's size, one unit.
        of_sample: units of the rows of a whole sample.
    """

    def __init__(self, table: TableSpec, fields: int, dimensions: Sequence[int] = ()) -> None:
        """Derives sizes from dimensions.

        Args:
            table: the rows' optimizer, and their dimension where none is given.
            fields: F, ids per sample.
            dimensions: values per row of each field, [F]; none: `table.dimension` for all.

        Raises:
            InvalidArgument: a wrong number of dimensions, or one out of range; dimensions without a common measure.
        """
        if dimensions and len(dimensions) != fields:
            raise InvalidArgument(f"{len(dimensions)} row dimensions given for {fields} fields")
        row_bytes = [replace(table, dimension=dimension).row_bytes for dimension in dimensions]
        self.unit_bytes = math.gcd(*row_bytes) if row_bytes else table.row_bytes
        self.of_fields = tuple(size // self.unit_bytes for size in row_bytes)
        self.of_sample = sum(self.of_fields) if row_bytes else fields
        if max(self.of_fields, default=1) > _LARGEST:
            raise InvalidArgument(
                f"rows of dimensions {list(dimensions)} have sizes of up to {max(self.of_fields)} times their common"
                f" measure, the limit is {_LARGEST}"
            )

    def cache(self, rows: int, table: TableSpec) -> int:
        """Units that fit a cache with room for so many rows of the table's own dimension."""
        return rows * table.row_bytes // self.unit_bytes
