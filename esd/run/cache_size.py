"""The number of rows that a worker of a run caches, and the bound of its default."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from esd.services.domain.footprint import planned_bytes
from esd.services.domain.tables import TableSpec

DEFAULT_CACHE_RATIO = 0.08  # ESD §6.1
DEFAULT_CACHE_BYTES = 768 * 2**20  # of all workers' caches and the dispatcher's planner together


@dataclass(frozen=True, slots=True)
class CacheSize:
    """The size of each worker's cache.

    Attributes:
        rows: rows of the first table that it holds.
        bounded: whether it is the default and smaller than the default share of the ids, to bound its bytes.
    """

    rows: int
    bounded: bool = False


def default_cache(
    count: Callable[[int], int], needed: int, tables: Sequence[TableSpec], workers: int, drawn: int = 0
) -> CacheSize:
    """Returns the cache that a worker has without an option.

    It is a share of the ids, at most the bytes of `DEFAULT_CACHE_BYTES` over all workers, and at least the rows that
    the samples of one iteration may need. Without the bound the caches, and the dispatcher's memory with them, would
    grow with the table.

    Args:
        count: counts the distinct ids of the data, up to a number of ids at which it may stop.
        needed: the most rows that a worker's samples of one iteration may have.
        tables: of the job.
        workers: their number.
        drawn: the most rows that negatives of one iteration may have besides, which are ids of no sample perhaps.
    """
    most = DEFAULT_CACHE_BYTES // (workers * _bytes_per_row(tables))
    distinct = count(math.ceil((max(needed + drawn, most) + 1) / DEFAULT_CACHE_RATIO))
    least = min(distinct, needed) + drawn
    share = max(1, round(DEFAULT_CACHE_RATIO * distinct))
    if share > max(least, most):
        return CacheSize(max(least, most), bounded=True)
    return CacheSize(max(share, least))


def _bytes_per_row(tables: Sequence[TableSpec]) -> int:
    """Returns the bytes of a cached row of the first table, in its worker and in the dispatcher's planner."""
    return tables[0].row_transfer_bytes + planned_bytes(tables, [1])
