"""The memory and time of training: a worker's as measured on its machine, a planner's by the rows of the caches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from esd.services.domain.tables import TableSpec, slots_of_tables

# A planner keeps a state, a place in a cache and an order of eviction for each cached row. `benchmarks.memory` measures
# 113 bytes at 4 million cached rows; the index, which grows by parts, is up to a third larger at other numbers.
PLANNED_ROW_BYTES = 150

# A server reads 33 MiB of stored rows per second where 20 other processes share 2 cores, and 150 MiB alone.
_LOADED_BYTES_PER_SECOND = 8 * 2**20


def loading_seconds(stored_bytes: int) -> float:
    """Returns the seconds in which a server that makes progress has loaded the rows that it has stored, in bytes."""
    return stored_bytes / _LOADED_BYTES_PER_SECOND


def planned_bytes(tables: Sequence[TableSpec], cache_rows: Sequence[int]) -> int:
    """Returns the most memory that one planner needs for the rows of full caches, in bytes.

    Args:
        tables: of the job; rows of all of them share a cache.
        cache_rows: rows of the first table that each worker's cache holds, [n].
    """
    return PLANNED_ROW_BYTES * sum(max(slots_of_tables(tables, rows)) for rows in cache_rows)


@dataclass(frozen=True, slots=True)
class Footprint:
    """The needs of a worker, as linear functions of its cached rows and its samples per iteration.

    Attributes:
        fixed_bytes: memory of the process, the model and its optimizer, without rows and samples.
        row_bytes: memory of a cached row of the first table, with optimizer state and bookkeeping (SCARS' d).
        sample_bytes: memory of a sample in an iteration: its rows in flight, activations and gradients (SCARS' a).
        step_seconds: computing time of an iteration, independent of its samples.
        sample_seconds: computing time per sample.
        dense_bytes: bytes of the dense gradients, which the workers sum in every iteration.
    """

    fixed_bytes: float
    row_bytes: float
    sample_bytes: float
    step_seconds: float
    sample_seconds: float
    dense_bytes: int

    def cache_rows(self, memory: float, samples: int) -> int:
        """Returns how many rows fit `memory` bytes in addition to the samples (SCARS eq. 7); may be negative."""
        return int((memory - self.fixed_bytes - samples * self.sample_bytes) // self.row_bytes)
