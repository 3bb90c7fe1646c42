"""What the parameter server asks of a store.

A store keeps rows, partial gradients and dense parameters of the ids of one shard. It is written by one
parameter server at a time. When a writing method returns, what it wrote survives as well as the store
promises (memory: while the process lives; Redis: by its persistence settings). All methods may be called
from several threads, and raise Unavailable while the backend is out of reach; any of them may be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ps_server.core.sample_log import LogStore
from services.domain.rows import GradientBlock, RowBlock
from services.domain.tables import TableSpec


class Splits(NamedTuple):
    """What the contributors of r pending sums agree on.

    Attributes:
        targets: int64 [r], the version that the sum will make; 0 where nothing is pending.
        contributors: uint64 [r], mask of worker slots.
        steps: int64 [r], optimizer step.
    """

    targets: NDArray[np.int64]
    contributors: NDArray[np.uint64]
    steps: NDArray[np.int64]


class PartialStore(Protocol):
    """Partial gradients that wait for their other contributors, as esd_native.rows.PartialGradients keeps them."""

    @property
    def memory_bytes(self) -> int:
        """Memory that the pending gradients take in this process."""

    def inspect(self, block: GradientBlock) -> NDArray[np.uint8]:
        """What each contribution means (`Arrival`), changing nothing."""

    def add(self, block: GradientBlock) -> None:
        """Keeps contributions that were inspected to be new or repeated."""

    def sum(self, block: GradientBlock) -> NDArray[np.float32]:
        """Per id the sum of what is pending and the block's own gradient, in worker order: float32 [r, D]."""

    def discard(self, ids: NDArray[np.uint64]) -> None:
        """Forgets everything pending for these ids."""

    def splits(self, ids: NDArray[np.uint64]) -> Splits:
        """What is pending for each id; zeros where nothing is."""

    def clear(self) -> None:
        """Forgets everything pending."""

    def __len__(self) -> int:
        """Pending gradients, over all ids."""


class TableStore(Protocol):
    """The rows of one table. Rows that were never written have version 0."""

    @property
    def partials(self) -> PartialStore:
        """The table's pending gradients."""

    @property
    def log(self) -> LogStore:
        """The log of the sample stream that trains the table."""

    def versions(self, ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The version of each row, int64 [r]."""

    def read(self, ids: NDArray[np.uint64]) -> RowBlock:
        """The rows with their versions; zeros where the version is 0. The arrays are the caller's to change."""

    def write_newer(self, block: RowBlock) -> NDArray[np.bool_]:
        """Stores each row whose version is above the stored one, atomically per row; tells which were stored."""

    def take_out_older(self, ids: NDArray[np.uint64], below: int) -> int:
        """Takes out each row whose version is below, atomically per row; how many were there.

        It counts as a change: with `keep_undo`, the pre-image is kept.
        """

    def scan(self) -> Iterator[RowBlock]:
        """Every stored row, in unspecified order, in blocks of about a MiB."""

    def __len__(self) -> int:
        """Stored rows."""

    def totals(self) -> tuple[int, int]:
        """Stored rows, and how often they were trained in their present lives, together."""

    def put_dense(self, data: bytes) -> None:
        """Replaces the dense parameters."""

    def get_dense(self) -> bytes | None:
        """The dense parameters stored last, None when there are none."""

    # The way back to a cut: pre-images of the rows that were changed since, in generations named by their cut.

    def load_history(self) -> bytes | None:
        """What `save_history` wrote last, None before."""

    def save_history(self, data: bytes) -> None:
        """Replaces the table's history, atomically."""

    def reopen(self, cuts: Sequence[int]) -> bool:
        """Called once, of a table that has a history: whether only its committed cuts are left of it.

        A store whose rows are gone with its process reads those of the last cut (0: none) and keeps the way back to the
        others; what belongs to none of them is dropped.

        Raises:
            FailedPrecondition: a file of the last cut is damaged.
        """

    def save(self, cut: int, earlier: int) -> tuple[int, int]:
        """Makes the rows of a complete cut as durable as the store can.

        Returns how many rows changed since the `earlier` cut (0: there is none), and the bytes that they take.
        """

    def rows_at(self, cut: int, later: Sequence[int]) -> Iterator[RowBlock]:
        """Every row as it was at a cut, once, in unspecified order; `later` are the cuts after it, ascending.

        No writes may run meanwhile.

        Raises:
            FailedPrecondition: a row or a file is damaged; the text names it.
        """

    def keep_undo(self, cut: int | None) -> None:
        """From now on `write_newer` keeps the pre-image of each row it changes first after `cut`; None: keeps none."""

    def undo(self, cut: int) -> int:
        """Puts back every pre-image kept under `cut` and forgets it; how many. No writes may run meanwhile."""

    def forget(self, cut: int) -> None:
        """Drops what is kept for a cut alone. One that is not there is no error."""

    def clear(self) -> None:
        """Drops all rows and pending gradients. No writes may run meanwhile."""

    def put_part(self, checkpoint: int, name: str, data: bytes) -> None:
        """Keeps a named part of a checkpoint."""

    def get_part(self, checkpoint: int, name: str) -> bytes | None:
        """A part of a checkpoint, None when there is no such one."""

    def parts(self) -> set[int]:
        """The checkpoints of which there are parts."""

    def drop_parts(self, checkpoint: int) -> None:
        """Drops all parts of a checkpoint."""


class Store(Protocol):
    """A place for tables."""

    @property
    def name(self) -> str:
        """Kind of store, without address or credentials."""

    def tables(self) -> list[TableSpec]:
        """Every table created so far."""

    def create(self, spec: TableSpec) -> tuple[TableSpec, bool]:
        """Creates a table unless the name is taken; the specification that holds now, and whether it is new."""

    def open(self, spec: TableSpec) -> TableStore:
        """A created table."""

    def shards(self, table: str) -> int:
        """The number of shards that a table was served by last; 0 if it has no history."""

    def claim(self, *, alone: bool) -> None:
        """Says that this process serves its shard from now on.

        A process that serves the shard already is an error where the store knows that it lives; where it may have died
        a moment ago, only for who wants to be `alone`.

        Raises:
            FailedPrecondition: there is another one.
        """

    def ping(self) -> None:
        """Says that this process still serves its shard. Raises Unavailable while the backend is out of reach."""

    def close(self) -> None:
        """Gives up connections; the store is not used any more."""
