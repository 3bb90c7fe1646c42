"""What the parameter server asks of a store.

A store keeps tables for one shard, and a table's share of a shard in six places, each with a protocol of its own:

    rows       RowStore      the rows, each with its version
    partials   PartialStore  partial gradients that wait for their other contributors
    cuts       CutStore      the way back to the rows as they were at earlier cuts
    history    HistoryStore  the record of epochs, cuts and checkpoints
    blobs      BlobStore     parts of checkpoints, and the dense parameters
    log        LogStore      the sample stream that trains the table

One parameter server at a time writes to a store: it claims its shard first, and as soon as another one has taken over,
whatever it writes is refused with StoreLost. When a writing method returns, what it wrote survives as well as the
store promises: in memory while the process lives, with a checkpoint directory from one checkpoint to the next, in Redis
by its persistence settings. All methods may be called from several threads and raise Unavailable while the backend is
out of reach; any of them may be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from esd.native import rows as native
from esd.ps_server.core.shard import Shard
from esd.services.domain.batches import LogEntry
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.rows import GradientBlock, RowBlock
from esd.services.domain.tables import TableSpec


class StoreLost(FailedPrecondition):
    """The store is not this server's any more, or not the one that it has begun with. Nothing is read or written."""


class RowStore(Protocol):
    """The rows of one table, each with its version. A row that was never written has version 0."""

    def versions(self, ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Returns the version of each row, int64 [r]."""

    def read(self, ids: NDArray[np.uint64]) -> RowBlock:
        """Returns the rows with their versions; zeros where the version is 0. The arrays are the caller's to change."""

    def write_newer(self, block: RowBlock) -> NDArray[np.bool_]:
        """Stores each row whose version is above the stored one, atomically per row. True where it was stored, [r]."""

    def write_newer_and_read(self, block: RowBlock, ids: NDArray[np.uint64]) -> tuple[NDArray[np.bool_], RowBlock]:
        """Does `write_newer`, then `read` of these ids, in one trip where the rows are in another process."""

    def forget_older(self, ids: NDArray[np.uint64], below: int) -> int:
        """Takes each row whose version is below `below` out of the table, atomically per row; how many there were.

        Leaving counts as a change: while pre-images are kept (see CutStore), that of the row is kept.
        """

    def scan(self) -> Iterator[RowBlock]:
        """Yields every stored row, in unspecified order, in blocks of at most a MiB."""

    def __len__(self) -> int:
        """Returns how many rows are stored."""

    def totals(self) -> tuple[int, int]:
        """Counts the rows that are stored, and all the trainings that they have had in their present lives."""

    def clear(self) -> None:
        """Drops all rows. No writes may run meanwhile."""


class Splits(NamedTuple):
    """What the contributors of r pending sums agree on.

    Attributes:
        targets: int64 [r], the version that the sum will make; 0 where nothing is pending.
        contributors: uint64 [r], mask of worker slots.
        steps: uint32 [r], optimizer step.
    """

    targets: NDArray[np.int64]
    contributors: NDArray[np.uint64]
    steps: NDArray[np.uint32]


class PartialStore(Protocol):
    """Partial gradients that wait for their other contributors, as esd.native.rows.PartialGradients keeps them."""

    @property
    def memory_bytes(self) -> int:
        """How much memory of this process the pending gradients take."""

    def load(self) -> None:
        """Takes up what an earlier process has left pending. Called once, before anything else but `clear`."""

    def inspect(self, block: GradientBlock) -> NDArray[np.uint8]:
        """Tells what each contribution means for the pending ones: an `Arrival` per gradient, [r]. Changes nothing."""

    def add(self, block: GradientBlock) -> None:
        """Keeps contributions that `inspect` has found to be new or repeated."""

    def sum(self, block: GradientBlock) -> NDArray[np.float32]:
        """Per id the sum of what is pending and the block's own gradient, in worker order: float32 [r, D]."""

    def splits(self, ids: NDArray[np.uint64]) -> Splits:
        """Returns what is pending for each id; zeros where nothing is."""

    def discard(self, ids: NDArray[np.uint64]) -> None:
        """Drops everything that is pending for these ids."""

    def clear(self) -> None:
        """Drops everything that is pending."""

    def __len__(self) -> int:
        """Returns how many gradients are pending, over all ids."""


class CutStore(Protocol):
    """The way back to the rows as they were at earlier cuts.

    A cut is not copied. Instead the store keeps pre-images: the value of each row before it changed first after the
    cut. The pre-images of one cut are a generation, named by the cut; going back undoes one generation after the other.
    """

    def resume(self, cuts: Sequence[int], saved: int) -> bool:
        """Takes up the cuts of committed checkpoints, ascending; called once, for a table that has a history.

        A store whose rows have gone with their process reads those of the last cut (0 or none: no rows), and keeps the
        way back to the others; what belongs to none of the cuts is dropped.

        Args:
            cuts: of the checkpoints.
            saved: a later cut that was saved, and of which it is not known whether it is a checkpoint; 0: none. What is
                durable of it is kept.

        Returns:
            True if the rows are those of the last cut now, False if they are what was written last.

        Raises:
            FailedPrecondition: a file of the last cut is damaged.
        """

    def keep_pre_images(self, cut: int | None) -> None:
        """From now on the pre-image of each row that changes first after `cut` is kept; None: none are kept."""

    def save(self, cut: int, earlier: int, base: int) -> tuple[int, int]:
        """Makes the rows of a complete cut as durable as the store can.

        Args:
            cut: the cut.
            earlier: the cut before it; 0: there is none.
            base: the cut that what is written may build on; 0: on none.

        Returns:
            How many rows changed since the earlier cut, and how many bytes were written. Where all rows are written,
            all count as changed.
        """

    def rows_at(self, cut: int, later: Sequence[int]) -> Iterator[RowBlock]:
        """Yields every row as it was at a cut, once, in unspecified order. No writes may run meanwhile.

        Args:
            cut: the cut.
            later: the cuts after it, ascending.

        Raises:
            FailedPrecondition: a row or a file is damaged; the text names it.
        """

    def as_of(self, block: RowBlock, cut: int, later: Sequence[int]) -> RowBlock:
        """Returns rows that were read a moment ago as they were at a cut; version 0 where there was none.

        Others may write meanwhile, but no cut is made and none is dropped. The arrays of the block may be changed.

        Args:
            block: the rows.
            cut: the cut.
            later: the cuts after it, ascending.

        Raises:
            FailedPrecondition: the way back is in files only; a row is damaged.
        """

    def put_back(self, cuts: Sequence[int]) -> int:
        """Puts the rows back to the first of these cuts, and drops their pre-images. No writes may run meanwhile.

        Args:
            cuts: one, and all those after it, ascending.

        Returns:
            How many rows were put back, each time counted.

        Raises:
            FailedPrecondition: a file of the cut is damaged. Nothing is changed.
        """

    def drop(self, cut: int) -> None:
        """Drops what is kept for a cut alone. A cut that is not there is no error."""


class HistoryStore(Protocol):
    """The record of a table's epochs, cuts and checkpoints, as bytes (see HistoryRecord)."""

    def load(self) -> bytes | None:
        """Returns the record that was saved last; None if there is none.

        After a change of the number of shards it is what the shards before have left to this one.

        Raises:
            FailedPrecondition: a record is damaged.
        """

    def save(self, data: bytes) -> None:
        """Replaces the record, atomically."""


class BlobStore(Protocol):
    """Bytes that are kept beside the rows as they come: named parts of checkpoints, and the dense parameters."""

    def put_part(self, checkpoint: int, name: str, data: bytes) -> None:
        """Keeps a named part of a checkpoint."""

    def get_part(self, checkpoint: int, name: str) -> bytes | None:
        """Returns a part of a checkpoint; None if there is no such part."""

    def checkpoints(self) -> set[int]:
        """Returns the checkpoints that have parts here."""

    def drop_parts(self, checkpoint: int) -> None:
        """Drops all parts of a checkpoint."""

    def put_dense(self, data: bytes) -> None:
        """Replaces the dense parameters."""

    def get_dense(self) -> bytes | None:
        """Returns the dense parameters that were stored last; None if there are none."""


class FrameStore(Protocol):
    """Does whole frames of the exchange, in one native call each that waits for nothing."""

    def apply(self, frame: native.Frame, waiting: native.WaitingRows, limit: int) -> native.Applied | None:
        """Stores what a frame pushes, tells it those who wait, and answers as many of its pulls as there can be.

        Args:
            frame: for this table.
            waiting: the rows that pulls wait for.
            limit: the most rows of an answer.

        Returns:
            What has become of it; None if something has to be waited for.
        """

    def answer(self, pulls: native.ExactPulls, sequence: int, limit: int) -> bytes | None:
        """Returns the next answer to pulls of a frame; None if there is nothing to tell yet."""


class LogStore(Protocol):
    """The entries of a sample log, in order. Only one thread calls at a time."""

    @property
    def durable(self) -> bool:
        """Whether an entry outlives this process once `append` has returned."""

    def last(self) -> LogEntry | None:
        """Returns the last entry, perhaps without its batch; None if there is none."""

    def append(self, entry: LogEntry) -> None:
        """Adds an entry behind the last one. An entry that is there is not added twice."""

    def read(self) -> Iterator[LogEntry]:
        """Yields all entries, in order."""

    def trim(self, position: int) -> None:
        """Drops the entries whose samples all lie before `position`. The mark of the stream's end stays."""

    def clear(self) -> None:
        """Drops all entries."""


@dataclass(frozen=True, slots=True)
class TableStore:
    """Where one table is kept on one shard; the module's documentation says what is kept where.

    A store whose rows are in this process may also have `frames`, made for a shard: a short way to its rows and partial
    gradients.
    """

    rows: RowStore
    partials: PartialStore
    cuts: CutStore
    history: HistoryStore
    blobs: BlobStore
    log: LogStore
    frames: Callable[[Shard], FrameStore] | None = None


class Store(Protocol):
    """A place where the tables of one shard are kept."""

    @property
    def name(self) -> str:
        """The kind of store, without address or credentials."""

    def tables(self) -> list[TableSpec]:
        """Returns every table that was created so far."""

    def create(self, spec: TableSpec) -> tuple[TableSpec, bool]:
        """Creates a table unless its name is taken; the specification that holds now, and whether it is new."""

    def open(self, spec: TableSpec) -> TableStore:
        """Returns a table that was created before."""

    def shards(self, table: str) -> int:
        """By how many shards a table was served last; 0 if it has no history."""

    def claim(self, *, exclusive: bool) -> None:
        """Says that this process serves its shard from now on, before it writes anything.

        A store that cannot tell a process that lives from one that has died a moment ago waits until it can, which
        takes seconds at most, or refuses if `exclusive` is asked for. What another process has claimed before is
        worth nothing from then on.

        Raises:
            FailedPrecondition: another process serves the shard.
        """

    def release(self) -> None:
        """Says that this process serves its shard no more. Without a claim it does nothing."""

    def ping(self) -> None:
        """Says that this process still serves its shard.

        Raises:
            Unavailable: the backend is out of reach.
            StoreLost: another process serves the shard, or the store has lost what it held.
        """

    def close(self) -> None:
        """Releases the shard and gives up connections; the store is not used any more."""
