"""The cost of an iteration (ESD §3.2): operations, sizes of rows, seconds on links, risk of evictions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.learned import Arrays
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.features import MAX_SAMPLE_IDS, Feature
from esd.services.domain.jobs import JobSpec
from esd.services.domain.tables import ROW_KEY_BYTES, TableSpec

if TYPE_CHECKING:  # in its stub only
    from esd.native.engine import IterationColumns

_TOLERANCE = 0.005
_FINEST_SCALE = math.ceil(0.5 / _TOLERANCE)  # rounding to 1/scale errs by at most 0.5/scale
_COST_LIMIT = 2**30  # largest entry of the cost matrix; it leaves room for the solvers' reduced costs in int32
_RISK_SMOOTHING = 0.1  # weight of the newest iteration


@dataclass(frozen=True, slots=True)
class Operations:
    """The numbers of rows, or of bytes, that each worker moves over its link, by kind of operation.

    Attributes:
        miss_pull: int64 [n], missing or outdated rows that the worker pulls.
        update_push: int64 [n], rows or partial gradients that it pushes because another worker needs the row.
        evict_push: int64 [n], rows or partial gradients that it pushes because the row leaves the cache.
    """

    miss_pull: NDArray[np.int64]
    update_push: NDArray[np.int64]
    evict_push: NDArray[np.int64]

    @classmethod
    def none(cls, workers: int) -> Self:
        """Returns zeros for n workers."""
        return cls(*(np.zeros(workers, np.int64) for _ in range(3)))

    def __add__(self, other: Self) -> Self:
        return type(self)(
            self.miss_pull + other.miss_pull,
            self.update_push + other.update_push,
            self.evict_push + other.evict_push,
        )

    @property
    def total(self) -> NDArray[np.int64]:
        """The sum over all kinds of operations, for each worker, int64 [n]."""
        return self.miss_pull + self.update_push + self.evict_push


class RowSizes:
    """The sizes of a row and of a partial gradient on the wire, by table (ESD §8.2).

    A row, D_tran(x), moves with its optimizer state. A partial gradient moves without it, and so does a row that is
    pulled for its first training or to be trained by several workers. Every row and gradient also carries its id,
    version and the like. A row that is pulled for its first training is charged, as in the papers, but does not cross
    the link, since its worker makes it. Row sizes are whole multiples of a unit, so that the engine and the solvers
    count in integers.

    Attributes:
        unit_bytes: bytes of one unit: the greatest common divisor of the rows' sizes on the wire.
        of_tables: size of each table's rows in units, [T]; empty for a single table, whose rows are one unit.
        of_sample: largest number of units of the rows of one sample.
        gradient_shares: size of a partial gradient relative to its row, for each table, [T].
        value_shares: size of a row without optimizer state relative to the whole row, for each table, [T].
    """

    def __init__(self, tables: Sequence[TableSpec], features: Sequence[Feature]) -> None:
        """Derives sizes from the tables.

        Args:
            tables: the job's tables, in order.
            features: the features of the samples.
        """
        row_bytes = [table.row_transfer_bytes for table in tables]
        gradient_bytes = [table.gradient_transfer_bytes for table in tables]
        value_bytes = [table.value_transfer_bytes for table in tables]
        self.unit_bytes = math.gcd(*row_bytes)
        self.gradient_shares = tuple(gradient / row for gradient, row in zip(gradient_bytes, row_bytes, strict=True))
        self.value_shares = tuple(values / row for values, row in zip(value_bytes, row_bytes, strict=True))
        of_tables = tuple(size // self.unit_bytes for size in row_bytes)
        self.of_tables = of_tables if len(tables) > 1 else ()
        declared = sum(feature.max_length * of_tables[feature.table] for feature in features)
        self.of_sample = min(declared, MAX_SAMPLE_IDS * max(of_tables))
        self._first_row = row_bytes[0]
        self._row_bytes = np.array(row_bytes)
        # Bytes per counted row, by the engine's 9 counters of each table, [3, 9 T]. The counter of all pulls includes
        # pulls without state, and these those of initial rows, whose counters correct it by the difference in size.
        sizes = list(zip(row_bytes, gradient_bytes, value_bytes, strict=True))
        self._moved = np.hstack([_moved_by_counter(*each) for each in sizes])
        self._carried = np.hstack([_carried_by_counter(*each) for each in sizes])

    def cache_room(self, rows: int) -> int:
        """Returns the room, in units, of a cache for `rows` rows of the first table."""
        return rows * self._first_row // self.unit_bytes

    def lists_room(self, job: JobSpec) -> int:
        """Returns the room, in units, that a job's negatives take at most in a cache; 0 if it has none."""
        if job.negatives is None:
            return 0
        rows = job.negatives.chunks(job.batch_size) * job.negatives.count
        return rows * (self.of_tables[job.negatives.table] if self.of_tables else 1)

    def moved_bytes(self, columns: IterationColumns) -> Operations:
        """Returns the bytes for which the operations of an iteration are charged."""
        return Operations(*self._moved @ _by_worker(columns))

    def carried_bytes(self, columns: IterationColumns) -> tuple[NDArray[np.int64], ...]:
        """Returns the bytes that cross the link, int64 [n] each: rows up, gradients up, rows down.

        The id and version with which a row is asked for go up.
        """
        return tuple(self._carried @ _by_worker(columns))

    def unsent_bytes(self, columns: IterationColumns) -> NDArray[np.int64]:
        """Returns the bytes of pulls that are charged and do not cross the link, since workers make the rows, [n]."""
        carried: NDArray[np.int64] = np.sum(self.carried_bytes(columns), axis=0)
        return self.moved_bytes(columns).total - carried

    def evicted_bytes(self, columns: IterationColumns) -> NDArray[np.int64]:
        """Returns the bytes of an iteration's evict pushes if all moved whole rows, [n]."""
        evicted = columns.table_counts[:, 3] + columns.table_counts[:, 4]
        moved: NDArray[np.int64] = self._row_bytes @ evicted
        return moved


def _moved_by_counter(row: int, gradient: int, values: int) -> NDArray[np.int64]:
    """Returns the bytes of miss pulls, update pushes and evict pushes for each counter of a table, [3, 9]."""
    return np.array(
        [
            [row, 0, 0, 0, 0, 0, 0, values - row, 0],
            [0, row, gradient, 0, 0, 0, 0, 0, 0],
            [0, 0, 0, row, gradient, 0, 0, 0, 0],
        ]
    )


def _carried_by_counter(row: int, gradient: int, values: int) -> NDArray[np.int64]:
    """Returns bytes by kind and direction: rows and requests for them up, gradients up, and rows down."""
    return np.array(
        [
            [ROW_KEY_BYTES, row, 0, row, 0, 0, 0, 0, 0],
            [0, 0, gradient, 0, gradient, 0, 0, 0, 0],
            [row - ROW_KEY_BYTES, 0, 0, 0, 0, 0, 0, values - row, ROW_KEY_BYTES - values],
        ]
    )


def _by_worker(columns: IterationColumns) -> NDArray[np.int64]:
    """Returns the counters of all tables, one table after the other, for each worker: [9 T, n]."""
    counts = columns.table_counts
    return counts.reshape(-1, counts.shape[2])


class CostModel:
    """Link costs of n workers (ESD Table 1: T_j = D_tran / B_j), in seconds and as small integers for the solvers.

    The cost of an operation is its number of bytes divided by the speed of its link: T_j for a row, less for a partial
    gradient or a row without its optimizer state.

    Attributes:
        transfer_seconds: float64 [n], T_j: seconds to move one row over worker j's link; where rows differ in size
            (ESD §8.2), one unit of row size.
        link_costs: int32 [n], T_j in units of `unit_seconds`, rounded, since the solvers are exact on integers. The
            unit is the largest whole fraction of the fastest link's T_j, at least 1/100 of it, with which no link cost
            is off by more than 0.5%: links of 5 and 0.5 Gbit/s cost 1 and 10, links of 3 and 2 Gbit/s cost 2 and 3. The
            unit is larger if the cost of a sample with many rows would leave the solvers' range.
        unit_seconds: seconds of one unit.
    """

    def __init__(self, row_bytes: int, bandwidths: Sequence[float], sample_rows: int) -> None:
        """Derives T_j and the integer link costs.

        Args:
            row_bytes: bytes of one row on the wire, with optimizer state, id and version; or bytes of one unit of size.
            bandwidths: bytes per second of each worker's link.
            sample_rows: rows of one sample, or their units. Multiplied by T_j + T_h it bounds the cost of a sample.

        Raises:
            InvalidArgument: a bandwidth is not positive and finite, or the slowest link is so much slower than the
                fastest that costs would leave the solvers' range.
        """
        for worker, bandwidth in enumerate(bandwidths):
            if not (math.isfinite(bandwidth) and bandwidth > 0):
                raise InvalidArgument(f"bandwidth of worker {worker} is {bandwidth}, it must be positive and finite")
        self._bandwidths = np.asarray(bandwidths, np.float64)
        self.transfer_seconds: NDArray[np.float64] = row_bytes / self._bandwidths
        fastest = float(self.transfer_seconds.min())
        ratios = self.transfer_seconds / fastest
        largest = float(ratios.max()) * 2 * sample_rows
        if largest > _COST_LIMIT:
            raise InvalidArgument(
                f"the slowest link is {ratios.max():.6g} times slower than the fastest: with {sample_rows} rows per "
                f"sample its cost reaches {largest:.6g}, the limit is {_COST_LIMIT}; raise the slowest bandwidth"
            )
        scale = min(_smallest_scale(ratios), int(_COST_LIMIT / largest))
        self.link_costs: NDArray[np.int32] = np.rint(ratios * scale).astype(np.int32)
        self.unit_seconds: float = fastest / scale

    def link_seconds(self, moved_bytes: Operations) -> NDArray[np.float64]:
        """Returns the time on each link for the bytes of its operations, float64 [n] seconds."""
        return self.seconds_of(moved_bytes.total)

    def seconds_of(self, sizes: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float64]:
        """Returns the transfer time of a number of bytes per worker, [n], on its link, float64 [n] seconds."""
        seconds: NDArray[np.float64] = np.asarray(sizes) / self._bandwidths
        return seconds


def slowest_link(sample_rows: int) -> float:
    """Returns the smallest speed, relative to the fastest link, that CostModel accepts for samples of `sample_rows`."""
    return min(1.0, 2 * sample_rows / _COST_LIMIT)


def _smallest_scale(ratios: NDArray[np.float64]) -> int:
    """Returns the smallest s with which round(s r) / s has a relative error of at most _TOLERANCE for every r >= 1."""
    scales = np.arange(1, _FINEST_SCALE + 1)[:, None]
    error = np.abs(np.rint(scales * ratios) / scales - ratios) / ratios
    fits = (error <= _TOLERANCE + 1e-12).all(axis=1)
    return int(scales[np.argmax(fits), 0])


class EvictionRisk:
    """The expected evict push of a row that enters a cache (ESD §8.1, future work).

    It learns, for each worker, the share of newly taken slots that cause an evict push, and the size of such a push. A
    cache that is not full evicts no row and has no such cost. A full cache evicts a row for each newly taken slot, and
    some of these rows must be pushed.
    """

    def __init__(self, workers: int) -> None:
        """Starts without any risk, for n workers."""
        self._risks = np.zeros(workers)

    def update(self, columns: IterationColumns, sizes: RowSizes) -> None:
        """Learns the evictions of one iteration, with an evict push and without."""
        pushed, dropped = columns.counts[3] + columns.counts[4], columns.counts[5]
        evicted = pushed + dropped
        # A push counts by its size relative to a whole row, since a partial gradient is smaller.
        share = sizes.moved_bytes(columns).evict_push / np.maximum(sizes.evicted_bytes(columns), 1)
        some = evicted > 0
        self._risks[some] += _RISK_SMOOTHING * (share[some] * pushed[some] / evicted[some] - self._risks[some])

    def costs(self, link_costs: NDArray[np.int32]) -> NDArray[np.float64]:
        """Returns the expected cost of taking a slot of each cache, float64 [n], in the unit of the link costs.

        If rows differ in size, it is the cost of taking one unit of room.
        """
        costs: NDArray[np.float64] = self._risks * link_costs
        return costs

    def save(self) -> dict[str, NDArray[Any]]:
        """Returns the risks, for `load`."""
        return {"risks": self._risks}

    def load(self, saved: Arrays) -> None:
        """Restores saved risks."""
        self._risks = saved["risks"]
