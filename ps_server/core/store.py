"""The interface between the parameter server and its stores.

A store keeps tables for one shard. For each table it has six parts, each with a protocol of its own:

    rows       RowStore      the rows, each with its version
    partials   PartialStore  partial gradients that wait for their other contributors
        cuts       CutStore      pre-images, from which the rows at earlier cuts are rebuilt
        history    HistoryStore  the record of epochs, cuts and checkpoints
    blobs      BlobStore     parts of checkpoints, and the dense parameters
    log        LogStore      the sample stream that trains the table

One parameter server at a time writes to a store. A server claims its shard first; as soon as another server has taken
the shard over, every write of the first one raises StoreLost. When a writing method has returned, its data survives as
well as the store promises: in memory while the process lives, in a checkpoint directory from one checkpoint to the
next, in Redis by its persistence settings. All methods may be called from several threads, may be repeated, and raise
Unavailable while the backend is out of reach.
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
    """The store belongs to another server now, or has lost its data. It must not be used any more."""


class RowStore(Protocol):
    """The rows of one table, each with its version. A row that was never written has version 0."""

    def versions(self, ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Returns the version of each row, int64 [r]."""

    def read(self, ids: NDArray[np.uint64]) -> RowBlock:
        """Returns the rows with their versions; zeros where the version is 0. The caller may change the arrays."""

    def write_newer(self, block: RowBlock) -> NDArray[np.bool_]:
        """Stores rows that are newer than the stored ones, atomically per row; returns which were stored, bool [r]."""

    def forget_older(self, ids: NDArray[np.uint64], below: int) -> int:
        """Removes each row whose version is below `below`, atomically per row; returns the number of removed rows.

        A removal counts as a change: where pre-images are kept (see CutStore), it keeps the pre-image of the row.
        """

    def scan(self) -> Iterator[RowBlock]:
        """Yields every stored row, in unspecified order, in blocks of at most a MiB."""

    def __len__(self) -> int:
        """Returns how many rows are stored."""

    def totals(self) -> tuple[int, int]:
        """Returns the number of stored rows, and how often they were trained in their present lives, in total."""

    def clear(self) -> None:
        """Drops all rows. The caller makes sure that no writes run meanwhile."""


class Splits(NamedTuple):
    """The properties on which the contributors of r pending sums agree.

    Attributes:
        targets: int64 [r], the version that the sum will make; 0 where no gradient is pending.
        contributors: uint64 [r, 2], the sets of workers, the lower word first.
        steps: uint32 [r], optimizer step.
    """

    targets: NDArray[np.int64]
    contributors: NDArray[np.uint64]
    steps: NDArray[np.uint32]


class PartialStore(Protocol):
    """Partial gradients that wait for their other contributors, as esd.native.rows.PartialGradients keeps them."""

    @property
    def memory_bytes(self) -> int:
        """Bytes of this process's memory that the pending gradients take."""

    def load(self) -> None:
        """Loads the gradients that an earlier process left pending. Called once, before every method except `clear`."""

    def inspect(self, block: GradientBlock) -> NDArray[np.uint8]:
        """Returns the effect of each contribution, an `Arrival` per gradient, uint8 [r]; changes nothing."""

    def add(self, block: GradientBlock) -> None:
        """Keeps contributions that `inspect` has classified as new or repeated."""

    def sum(self, block: GradientBlock) -> NDArray[np.float32]:
        """Returns per id the sum of the pending gradients and the block's own one, in worker order: float32 [r, D]."""

    def splits(self, ids: NDArray[np.uint64]) -> Splits:
        """Returns the properties of the pending sum of each id; zeros where no gradient is pending."""

    def discard(self, ids: NDArray[np.uint64]) -> None:
        """Drops all pending gradients of these ids."""

    def clear(self) -> None:
        """Drops all pending gradients."""

    def __len__(self) -> int:
        """Returns how many gradients are pending, over all ids."""


class CutStore(Protocol):
    """Rebuilds the rows as they were at earlier cuts.

    A cut is not copied. Instead the store keeps pre-images: the value of each row before its first change after the
    cut. The pre-images of one cut form a generation, named by the cut; going back undoes the generations one by one.
    """

    def resume(self, cuts: Sequence[int], saved: int) -> bool:
        """Opens the cuts of committed checkpoints, ascending. Called once, for a table that has a history.

        A store whose rows were lost with their process loads the rows of the last cut (without cuts: no rows), and
        keeps the data of the other cuts. Data of any further cut is dropped.

        Args:
            cuts: the cuts of the committed checkpoints.
            saved: a later cut that was saved but may or may not be a checkpoint; 0: none. Its durable data is kept.

        Returns:
            True if the rows are now the rows of the last cut; False if they are the rows that were written last.

        Raises:
            FailedPrecondition: a file of the last cut is damaged.
        """

    def keep_pre_images(self, cut: int | None) -> None:
        """From now on keeps the pre-image of each row at its first change after `cut`; None: keeps no pre-images."""

    def save(self, cut: int, earlier: int, base: int) -> tuple[int, int]:
        """Makes the rows of a complete cut as durable as the store can.

        Args:
            cut: the cut.
            earlier: the cut before it; 0: there is none.
            base: the cut that the written data may build on; 0: the data must stand alone.

        Returns:
            The number of rows that changed since the earlier cut, and the number of bytes written. Where all rows
            are written, all count as changed.
        """

    def rows_at(self, cut: int, later: Sequence[int]) -> Iterator[RowBlock]:
        """Yields every row once as it was at a cut, in unspecified order. No writes may run meanwhile.

        Args:
            cut: the cut.
            later: the cuts after it, ascending.

        Raises:
            FailedPrecondition: a row or a file is damaged; the message names it.
        """

    def as_of(self, block: RowBlock, cut: int, later: Sequence[int]) -> RowBlock:
        """Turns rows that were just read into the rows as they were at a cut; version 0 where the row did not exist.

        Writes may run meanwhile, but no cut may be made or dropped. The arrays of the block may be changed.

        Args:
            block: the rows.
            cut: the cut.
            later: the cuts after it, ascending.

        Raises:
            FailedPrecondition: the rows of the cut exist in files only, or a row is damaged.
        """

    def put_back(self, cuts: Sequence[int]) -> int:
        """Puts the rows back to the first of these cuts, and drops their pre-images. No writes may run meanwhile.

        Args:
            cuts: the cut to go back to, and all later cuts, ascending.

        Returns:
            The number of rows put back; a row counts once for each generation that holds it.

        Raises:
            FailedPrecondition: a file of the cut is damaged. No row is changed then.
        """

    def drop(self, cut: int) -> None:
        """Drops the data that only this cut needs. Does nothing if the cut does not exist."""


class HistoryStore(Protocol):
    """The record of a table's epochs, cuts and checkpoints, as bytes (see HistoryRecord)."""

    def load(self) -> bytes | None:
        """Returns the record that was saved last; None if the table has none.

        After a change of the number of shards it is this shard's part of the earlier shards' records.

        Raises:
            FailedPrecondition: a record is damaged.
        """

    def save(self, data: bytes) -> None:
        """Replaces the record, atomically."""


class BlobStore(Protocol):
    """Opaque bytes stored with the rows: named parts of checkpoints, and the dense parameters."""

    def put_part(self, checkpoint: int, name: str, data: bytes) -> None:
        """Keeps a named part of a checkpoint."""

    def get_part(self, checkpoint: int, name: str) -> bytes | None:
        """Returns a part of a checkpoint; None if it does not exist."""

    def checkpoints(self) -> set[int]:
        """Returns the checkpoints that have parts in this store."""

    def drop_parts(self, checkpoint: int) -> None:
        """Drops all parts of a checkpoint."""

    def put_dense(self, data: bytes) -> None:
        """Replaces the dense parameters."""

    def get_dense(self) -> bytes | None:
        """Returns the dense parameters that were stored last; None if none were stored."""


class FrameStore(Protocol):
    """Applies whole frames of the exchange, in one native call each that never waits."""

    def apply(
        self,
        frame: native.HeldFrame,
        waiting: native.WaitingRows,
        limit: int,
        changed: native.ChangedRows | None = None,
    ) -> native.Applied:
        """Stores the pushes of a frame, announces them to the waiting pulls, and answers the frame's first pulls.

        Args:
            frame: a frame for this table.
            waiting: the rows that pulls wait for.
            limit: the most rows of an answer.
            changed: receives the ids of stored rows; None: no reader follows the table.
        """

    def answer(self, pulls: native.ExactPulls, sequence: int, limit: int, *, storing: bool) -> bytes | None:
        """Returns the next answer to the pulls of a frame; None if none of their rows can be sent yet.

        With `storing`, the pushes of the frame are not stored yet, and so it is not the last answer.
        """


class LogStore(Protocol):
    """The entries of a sample log, in order. Only one thread calls at a time."""

    @property
    def durable(self) -> bool:
        """Whether an entry outlives this process once `append` has returned."""

    def last(self) -> LogEntry | None:
        """Returns the last entry, perhaps without its batch; None if there is none."""

    def append(self, entry: LogEntry) -> None:
        """Adds an entry after the last one. An entry that is stored already is not added twice."""

    def read(self) -> Iterator[LogEntry]:
        """Yields all entries, in order."""

    def trim(self, position: int) -> None:
        """Drops the entries whose samples all lie before `position`. The mark of the stream's end stays."""

    def clear(self) -> None:
        """Drops all entries."""


@dataclass(frozen=True, slots=True)
class TableStore:
    """The parts of one table on one shard; the documentation of the module describes them.

    `frames`, which only a store with its rows in this process has, makes the fast path to the rows and partial
    gradients of a shard.
    """

    rows: RowStore
    partials: PartialStore
    cuts: CutStore
    history: HistoryStore
    blobs: BlobStore
    log: LogStore
    frames: Callable[[Shard], FrameStore] | None = None


class Store(Protocol):
    """Keeps the tables of one shard."""

    @property
    def name(self) -> str:
        """The kind of store, without address or credentials."""

    @property
    def loaded_bytes(self) -> int:
        """Bytes of files that were loaded so far to open tables; 0 in a store that loads none."""

    def tables(self) -> list[TableSpec]:
        """Returns every table that was created so far."""

    def create(self, spec: TableSpec) -> tuple[TableSpec, bool]:
        """Creates a table unless its name is taken; returns the stored specification, and whether it is new."""

    def open(self, spec: TableSpec) -> TableStore:
        """Opens a table that was created before."""

    def shards(self, table: str) -> int:
        """Returns the number of shards that last served a table; 0 if it has no history."""

    def claim(self, *, exclusive: bool) -> None:
        """Registers this process as the server of its shard. Must be called before any write.

        If the shard is claimed and the store cannot tell a live claimant from one that has just died, the call waits
        until it can, a few seconds at most, or, with `exclusive`, raises. An earlier claim becomes void.

        Raises:
            FailedPrecondition: another process serves the shard.
        """

    def release(self) -> None:
        """Gives the claim of the shard back. Does nothing without a claim."""

    def ping(self) -> None:
        """Renews the claim of the shard.

        Raises:
            Unavailable: the backend is out of reach.
            StoreLost: another process serves the shard, or the store has lost its data.
        """

    def close(self) -> None:
        """Releases the shard and closes connections; the store must not be used afterwards."""
