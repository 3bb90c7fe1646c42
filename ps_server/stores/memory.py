"""The store in this process's memory: its data is lost with the process."""

# ruff: noqa: D102 - the methods are documented in ps_server/core/store.py
from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from esd.native.rows import (
    Applied,
    ChangedRows,
    ExactPulls,
    FrameTable,
    HeldFrame,
    PartialGradients,
    PreImages,
    RowTable,
    WaitingRows,
)
from esd.ps_server.core.shard import Shard
from esd.ps_server.core.store import Splits, TableStore
from esd.ps_server.stores.row_streams import scan
from esd.services.domain.batches import LogEntry
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.rows import GradientBlock, RowBlock
from esd.services.domain.tables import OptimizerKind, TableSpec

_SCAN_BYTES = 1 << 20
_OPTIMIZERS = (OptimizerKind.SGD, OptimizerKind.ROWWISE_ADAGRAD, OptimizerKind.ADAM)  # in FrameTable's numbering


class MemoryRows:
    """A RowStore over the native row table.

    Attributes:
        rows: the rows.
        pre_images: by cut, the pre-images kept for it.
        width: W, floats of a row.
        row_bytes: bytes of a row.
        rows_per_block: rows of a block when the table is scanned.
    """

    def __init__(self, spec: TableSpec) -> None:
        self.width = spec.row_width
        self.row_bytes = spec.row_bytes
        self.rows_per_block = max(1, _SCAN_BYTES // spec.row_bytes)
        self.rows = RowTable(spec.row_width)
        self.pre_images: dict[int, PreImages] = {}
        self._cut: int | None = None

    def versions(self, ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        return self.rows.versions(ids)

    def read(self, ids: NDArray[np.uint64]) -> RowBlock:
        return RowBlock(ids, *self.rows.read(ids))

    def write_newer(self, block: RowBlock) -> NDArray[np.bool_]:
        return self.rows.write_newer(block.ids, block.versions, block.rows, self.kept_now)

    def forget_older(self, ids: NDArray[np.uint64], below: int) -> int:
        return self.rows.forget_older(ids, below, self.kept_now)

    def scan(self) -> Iterator[RowBlock]:
        return scan(self.rows, self.rows_per_block)

    def __len__(self) -> int:
        return len(self.rows)

    def totals(self) -> tuple[int, int]:
        return len(self.rows), self.rows.trainings

    def clear(self) -> None:
        self.rows = RowTable(self.width)

    def keep_pre_images(self, cut: int | None) -> None:
        """From now on keeps the pre-image of each row at its first change after `cut`; None: keeps no pre-images."""
        if cut is not None:
            self.pre_images.setdefault(cut, PreImages(self.width))
        self._cut = cut

    @property
    def kept_now(self) -> PreImages | None:
        """The pre-images to which a changing row is added now; None: none are kept."""
        return None if self._cut is None else self.pre_images[self._cut]

    def kept_between(self, cut: int, later: float = math.inf) -> list[PreImages]:
        """Returns the pre-images of this cut and of further ones before the later one, in the order of the cuts."""
        return [kept for name, kept in sorted(self.pre_images.copy().items()) if cut <= name < later]

    def as_of(self, cut: int, ids: NDArray[np.uint64]) -> RowBlock:
        """Returns rows as they were at a cut whose pre-images are kept; version 0 where a row did not exist.

        Writes may run meanwhile. The present rows are read first: a row that changes afterwards has its pre-image by
        the time pre-images are read.
        """
        block = self.read(ids)
        for kept in reversed(self.kept_between(cut)):
            kept.overlay(block.ids, block.versions, block.rows)
        return block

    def all_as_of(self, cut: int) -> Iterator[RowBlock]:
        """Yields every row as it was at a cut whose pre-images are kept.

        Writes may run meanwhile; a row that changes meanwhile is yielded once or twice, always as it was at the cut.
        """
        for block in self.scan():
            unchanged = np.ones(len(block), np.bool_)
            for kept in self.kept_between(cut):
                unchanged &= ~kept.kept(block.ids)
            yield block[unchanged]
        # A row that had changed before its slot was scanned has its pre-image by now.
        for block in self._first_pre_images(self.kept_between(cut)):
            yield block[block.versions > 0]

    def changed_between(self, cut: int, later: int) -> Iterator[NDArray[np.uint64]]:
        """Yields the ids of the rows that have changed between two cuts, of which the first has pre-images."""
        for block in self._first_pre_images(self.kept_between(cut, later)):
            yield block.ids

    def _first_pre_images(self, generations: list[PreImages]) -> Iterator[RowBlock]:
        """Yields the pre-images of these generations. Of each row, the earliest pre-image is yielded."""
        for at, kept in enumerate(generations):
            for block in scan(kept, self.rows_per_block):
                first = np.ones(len(block), np.bool_)
                for earlier in generations[:at]:
                    first &= ~earlier.kept(block.ids)
                yield block[first]


class MemoryCuts:
    """A CutStore over the pre-images that MemoryRows keeps."""

    def __init__(self, rows: MemoryRows) -> None:
        self._rows = rows

    def resume(self, cuts: Sequence[int], saved: int) -> bool:  # noqa: ARG002
        return False  # a table in memory lives no longer than its rows

    def keep_pre_images(self, cut: int | None) -> None:
        self._rows.keep_pre_images(cut)

    def save(self, cut: int, earlier: int, base: int) -> tuple[int, int]:  # noqa: ARG002
        changed = len(self._rows.pre_images[earlier]) if earlier else len(self._rows)
        return changed, changed * self._rows.row_bytes

    def rows_at(self, cut: int, later: Sequence[int]) -> Iterator[RowBlock]:  # noqa: ARG002
        return self._rows.all_as_of(cut)

    def as_of(self, block: RowBlock, cut: int, later: Sequence[int]) -> RowBlock:
        for generation in reversed((cut, *later)):
            if generation not in self._rows.pre_images:
                raise FailedPrecondition(
                    f"the rows of checkpoint {cut} are in files only since this server was started again: wait for a "
                    "later checkpoint, or go back to this one (esd checkpoint restore)"
                )
            self._rows.pre_images[generation].overlay(block.ids, block.versions, block.rows)
        return block

    def put_back(self, cuts: Sequence[int]) -> int:
        count = 0
        for cut in reversed(cuts):
            if cut in self._rows.pre_images:
                for block in scan(self._rows.pre_images[cut], self._rows.rows_per_block):
                    self._rows.rows.overwrite(block.ids, block.versions, block.rows)
                    count += len(block)
                del self._rows.pre_images[cut]
        return count

    def drop(self, cut: int) -> None:
        self._rows.pre_images.pop(cut, None)


class MemoryPartials:
    """A PartialStore over the native table of partial gradients.

    Attributes:
        pending: the table.
    """

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension
        self.pending = PartialGradients(dimension)

    @property
    def memory_bytes(self) -> int:
        return self.pending.memory_bytes

    def load(self) -> None:
        """Does nothing: no gradient outlives its process."""

    def inspect(self, block: GradientBlock) -> NDArray[np.uint8]:
        return self.pending.inspect(block.ids, block.targets, block.contributors, block.steps, block.worker)

    def add(self, block: GradientBlock) -> None:
        self.pending.add(block.ids, block.targets, block.contributors, block.steps, block.gradients, block.worker)

    def sum(self, block: GradientBlock) -> NDArray[np.float32]:
        return self.pending.sum(block.ids, block.gradients, block.worker)

    def splits(self, ids: NDArray[np.uint64]) -> Splits:
        return Splits(*self.pending.splits(ids))

    def discard(self, ids: NDArray[np.uint64]) -> None:
        self.pending.discard(ids)

    def clear(self) -> None:
        self.pending = PartialGradients(self._dimension)

    def __len__(self) -> int:
        return len(self.pending)


class MemoryFrames:
    """A FrameStore over the rows and partial gradients in memory."""

    def __init__(self, spec: TableSpec, shard: Shard, rows: MemoryRows, partials: MemoryPartials) -> None:
        optimizer = spec.optimizer
        self._rows = rows
        self._partials = partials
        self._table = FrameTable(
            spec.dimension,
            spec.row_width,
            spec.seed,
            spec.init_scale,
            _OPTIMIZERS.index(optimizer.kind),
            optimizer.epsilon,
            optimizer.beta1,
            optimizer.beta2,
            optimizer.max_norm,
            shard.index,
            shard.count,
        )

    def apply(self, frame: HeldFrame, waiting: WaitingRows, limit: int, changed: ChangedRows | None = None) -> Applied:
        rows = self._rows
        return self._table.apply(frame, rows.rows, self._partials.pending, rows.kept_now, waiting, limit, changed)

    def answer(self, pulls: ExactPulls, sequence: int, limit: int, *, storing: bool) -> bytes | None:
        return self._table.answer(pulls, sequence, self._rows.rows, limit, storing)


class MemoryHistory:
    """A HistoryStore of one record."""

    def __init__(self) -> None:
        self._record: bytes | None = None

    def load(self) -> bytes | None:
        return self._record

    def save(self, data: bytes) -> None:
        self._record = data


class MemoryBlobs:
    """A BlobStore of dictionaries."""

    def __init__(self) -> None:
        self._parts: dict[int, dict[str, bytes]] = {}
        self._dense: bytes | None = None

    def put_part(self, checkpoint: int, name: str, data: bytes) -> None:
        self._parts.setdefault(checkpoint, {})[name] = data

    def get_part(self, checkpoint: int, name: str) -> bytes | None:
        return self._parts.get(checkpoint, {}).get(name)

    def checkpoints(self) -> set[int]:
        return set(self._parts)

    def drop_parts(self, checkpoint: int) -> None:
        self._parts.pop(checkpoint, None)

    def put_dense(self, data: bytes) -> None:
        self._dense = data

    def get_dense(self) -> bytes | None:
        return self._dense


class MemoryLog:
    """A LogStore of a queue of entries."""

    durable = False

    def __init__(self) -> None:
        self._entries: deque[LogEntry] = deque()

    def last(self) -> LogEntry | None:
        return self._entries[-1] if self._entries else None

    def append(self, entry: LogEntry) -> None:
        self._entries.append(entry)

    def read(self) -> Iterator[LogEntry]:
        return iter(tuple(self._entries))

    def trim(self, position: int) -> None:
        while self._entries and self._entries[0].end <= position and not self._entries[0].closes:
            self._entries.popleft()

    def clear(self) -> None:
        self._entries.clear()


def memory_table(spec: TableSpec) -> TableStore:
    """Returns an empty table in memory."""
    rows, partials = MemoryRows(spec), MemoryPartials(spec.dimension)
    return TableStore(
        rows=rows,
        partials=partials,
        cuts=MemoryCuts(rows),
        history=MemoryHistory(),
        blobs=MemoryBlobs(),
        log=MemoryLog(),
        frames=lambda shard: MemoryFrames(spec, shard, rows, partials),
    )


class MemoryStore:
    """A Store of tables in memory."""

    name = "memory"
    loaded_bytes = 0

    def __init__(self) -> None:
        self._tables: dict[str, tuple[TableSpec, TableStore]] = {}
        self._creation = threading.Lock()

    def tables(self) -> list[TableSpec]:
        return [spec for spec, _ in self._tables.values()]

    def create(self, spec: TableSpec) -> tuple[TableSpec, bool]:
        with self._creation:
            if spec.name in self._tables:
                return self._tables[spec.name][0], False
            self._tables[spec.name] = (spec, self._make(spec))
            return spec, True

    def _make(self, spec: TableSpec) -> TableStore:
        return memory_table(spec)

    def open(self, spec: TableSpec) -> TableStore:
        return self._tables[spec.name][1]

    def shards(self, table: str) -> int:  # noqa: ARG002
        return 0  # no table outlives its process

    def claim(self, *, exclusive: bool) -> None:
        """Does nothing: no other process can reach this memory."""

    def release(self) -> None:
        """Does nothing: no other process waits for this memory."""

    def ping(self) -> None:
        """Does nothing: memory is always reachable."""

    def close(self) -> None:
        self._tables.clear()
