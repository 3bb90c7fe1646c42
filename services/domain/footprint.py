"""The memory and time of training: a worker's as measured on its machine, other services' by their rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from esd.services.domain.tables import TableSpec, slots_of_tables

# A planner keeps a state, a place in a cache and an order of eviction for each cached row. `benchmarks.memory` measures
# 113 bytes at 4 million cached rows; the index, which grows by parts, is up to a third larger at other numbers.
PLANNED_ROW_BYTES = 150

KNOWN_ROW_BYTES = 45  # of a planner that decides which rows are forgotten, for a row that no worker caches
TIMED_ROW_BYTES = 16  # more, for the order of the last trainings
SNAPSHOT_ROW_BYTES = 90  # of a planner's snapshot for each row that it knows
ADMISSION_BYTES = 64 * 2**20  # of a planner that counts the iterations of ids, and as much again in its snapshot

# A stored row has its values, id and version, and a place in an index that is 3/5 to 3/4 full: 27 to 30 bytes more than
# the values. tests/unit/ps_server/test_needed_bytes.py measures these two, and Redis' row.
STORED_ROW_BYTES = 30
NEW_ROW_BYTES = 14  # of a row that was not there at the oldest checkpoint that is kept
REDIS_NEW_ROW_BYTES = 73  # the same in Redis: a field without a record
CHECKPOINT_ROW_BYTES = 16
CHECKPOINT_COPIES = 2.5  # of all rows, while they are written anew; 1 to 1.5 otherwise
_REDIS_RECORD, _REDIS_FIELD = 9, 57  # bytes of a record that are no values, and of its field without the record
_FILTER_BLOCK_BYTES, _FILTER_BLOCK_ROWS = 32, 16
_FILTER_FIRST_BLOCKS, _FILTER_LAYERS = 2**12, 6

# Processes without rows, caches and samples: proportional set sizes of a local run with two workers.
SERVER_BYTES = 50 * 2**20
SERVER_FRAME_BYTES = 150 * 2**20  # at most, of frames on their way
DISPATCHER_BYTES = 192 * 2**20  # with plans on their way
DRIVER_BYTES = 100 * 2**20  # of the command that reads the samples
WORKER_HOST_BYTES = 180 * 2**20  # of the process that workers of a local run are forks of

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


def stored_bytes(table: TableSpec) -> int:
    """Returns the memory of a row at a parameter server that keeps rows itself, or of a copy for a checkpoint."""
    return table.row_bytes + STORED_ROW_BYTES


def redis_bytes(table: TableSpec) -> int:
    """Returns the memory of a row in Redis, whose allocator (jemalloc) has four sizes between two powers of two."""
    record = table.row_bytes + _REDIS_RECORD
    step = 16 if record <= 128 else 1 << ((record - 1).bit_length() - 3)
    return -(-record // step) * step + _REDIS_FIELD


def filter_bytes(rows: int) -> int:
    """Returns the memory of a parameter server's filter of the rows of a table that it has written to Redis.

    It grows by layers, each of which is four times as large as the one before (native/rows/field_filter.h).
    """
    layer = blocks = _FILTER_FIRST_BLOCKS
    for _ in range(_FILTER_LAYERS - 1):
        if rows <= _FILTER_BLOCK_ROWS * blocks:
            break
        layer *= 4
        blocks += layer
    return _FILTER_BLOCK_BYTES * blocks


@dataclass(frozen=True, slots=True)
class Footprint:
    """The needs of a worker, as linear functions of its cached rows and its samples per iteration.

    Attributes:
        fixed_bytes: memory of the process, the model and its optimizer, without rows and samples.
        row_bytes: memory of a cached row of the first table, with optimizer state and bookkeeping (SCARS' d).
        sample_bytes: memory of a sample in an iteration: its rows in flight, activations and gradients (SCARS' a).
        step_seconds: computing time of an iteration, independent of its samples.
        sample_seconds: computing time per sample.
        dense_shapes: shapes of the dense parameters, whose gradients the workers sum in every iteration.
        slowness: seconds that a second of the processor takes where the others were measured: 4 with a quarter of it.
        message_seconds: time of an iteration that a worker's processor takes beside the model's computation.
        round_trip_seconds: for a message from a worker to the services and its answer; 0: next to nothing.
    """

    fixed_bytes: float
    row_bytes: float
    sample_bytes: float
    step_seconds: float
    sample_seconds: float
    dense_shapes: tuple[tuple[int, ...], ...]
    slowness: float = 1.0
    message_seconds: float = 0.0
    round_trip_seconds: float = 0.0

    @property
    def dense_bytes(self) -> int:
        """The bytes of the dense parameters."""
        return 4 * sum(map(math.prod, self.dense_shapes))

    def cache_rows(self, memory: float, samples: int) -> int:
        """Returns how many rows fit `memory` bytes in addition to the samples (SCARS eq. 7); may be negative."""
        return int((memory - self.fixed_bytes - samples * self.sample_bytes) // self.row_bytes)
