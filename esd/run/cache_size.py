"""The number of rows that a worker of a run caches, and the bound of its default."""

from __future__ import annotations

from collections.abc import Sequence
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
        bounded_from: rows that the default share of the ids would have been, if the default is bounded by bytes; 0: it
            is not.
    """

    rows: int
    bounded_from: int = 0


def default_cache(distinct: int, needed: int, tables: Sequence[TableSpec], workers: int) -> CacheSize:
    """Returns the cache that a worker has without an option.

    It is a share of the ids, at most the bytes of `DEFAULT_CACHE_BYTES` over all workers, and at least the rows that
    the samples of one iteration may need. Without the bound the caches, and the dispatcher's memory with them, would
    grow with the table.

    Args:
        distinct: number of distinct ids of the data.
        needed: the most rows that a worker's samples of one iteration may have.
        tables: of the job.
        workers: their number.
    """
    share = max(1, round(DEFAULT_CACHE_RATIO * distinct))
    most = max(min(distinct, needed), DEFAULT_CACHE_BYTES // (workers * _bytes_per_row(tables)))
    if share > most:
        return CacheSize(most, bounded_from=share)
    return CacheSize(max(share, min(distinct, needed)))


def _bytes_per_row(tables: Sequence[TableSpec]) -> int:
    """Returns the bytes of a cached row of the first table, in its worker and in the dispatcher's planner."""
    return tables[0].row_transfer_bytes + planned_bytes(tables, [1])
