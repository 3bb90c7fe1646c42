"""Push plans: everything one worker does in one iteration, decided by the dispatcher.

The dispatcher mirrors every cache and decides samples, pushes, evictions, pulls and cache slots; the worker holds
tensors and obeys. Sets of rows are columns of equal length, never one object per row. The columns have the same names
in the engine that makes them (esd/native/engine.pyi), here, and in the messages that carry them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.ids import parts_of_tables, table_of
from esd.services.domain.jobs import JobSpec
from esd.services.domain.versions import trainings
from esd.services.domain.worker_set import WorkerSet

Column = TypeVar("Column", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Transfers:
    """r rows to move between a cache and the parameter server.

    Attributes:
        ids: uint64 [r], distinct.
        slots: uint32 [r], cache slots.
        versions: int64 [r]; of rows, the version that is moved; of gradients, the version that their sum makes.
        early: the first `early` entries do not touch the previous iteration and may move while it trains.
    """

    ids: NDArray[np.uint64]
    slots: NDArray[np.uint32]
    versions: NDArray[np.int64]
    early: int

    def __len__(self) -> int:
        return len(self.ids)

    def half(self, *, early: bool) -> Self:
        """Returns the rows that may move while the previous iteration trains, or those that must wait for its end."""
        part = _half(self.early, early=early)
        return type(self)(self.ids[part], self.slots[part], self.versions[part], self.early if early else 0)

    def joined(self, others: Self) -> Self:
        """Returns these rows and others as one list, those of both first that may move early."""
        if not len(others):
            return self
        ours, theirs = self.early, others.early
        return type(self)(
            _joined(self.ids, ours, others.ids, theirs),
            _joined(self.slots, ours, others.slots, theirs),
            _joined(self.versions, ours, others.versions, theirs),
            ours + theirs,
        )

    def at(self, places: NDArray[np.integer]) -> Self:
        """Returns the rows at these places, which ascend."""
        early = int(np.searchsorted(places, self.early))
        return type(self)(self.ids[places], self.slots[places], self.versions[places], early)

    def by_table(self, tables: int) -> list[Self]:
        """Returns the rows of each of a job's tables, by number."""
        return [self] if tables == 1 else [self.at(part) for part in parts_of_tables(self.ids, tables)]


NO_TRANSFERS = Transfers(np.empty(0, np.uint64), np.empty(0, np.uint32), np.empty(0, np.int64), 0)


@dataclass(frozen=True, slots=True)
class GradientTransfers:
    """r partial gradients to push.

    Attributes:
        rows: the rows that the gradients belong to, with the version that each sum makes.
        contributors: uint64 [r], bit w is set when worker slot w contributes.
        steps: int64 [r], the optimizer step (iteration + 1) that produced each gradient.
    """

    rows: Transfers
    contributors: NDArray[np.uint64]
    steps: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rows)

    def half(self, *, early: bool) -> Self:
        """Returns the gradients that may move while the previous iteration trains, or those that must wait."""
        part = _half(self.rows.early, early=early)
        return type(self)(self.rows.half(early=early), self.contributors[part], self.steps[part])

    def joined(self, others: Self) -> Self:
        """Returns these gradients and others as one list, those of both first that may move early."""
        if not len(others):
            return self
        ours, theirs = self.rows.early, others.rows.early
        return type(self)(
            self.rows.joined(others.rows),
            _joined(self.contributors, ours, others.contributors, theirs),
            _joined(self.steps, ours, others.steps, theirs),
        )

    def by_table(self, tables: int) -> list[Self]:
        """Returns the gradients of each of a job's tables, by number."""
        if tables == 1:
            return [self]
        parts = parts_of_tables(self.rows.ids, tables)
        return [
            type(self)(rows, self.contributors[part], self.steps[part])
            for rows, part in zip(self.rows.by_table(tables), parts, strict=True)
        ]


NO_GRADIENTS = GradientTransfers(NO_TRANSFERS, np.empty(0, np.uint64), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class DirectRows:
    """Which d of r rows to push, or to pull, go straight between workers (Herald App. B).

    Attributes:
        places: uint32 [d], their places among the r rows, ascending.
        peers: uint32 [d], the slot of the worker that gets each of them, or of the one that sends it.
    """

    places: NDArray[np.uint32]
    peers: NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.places)

    def by_table(self, ids: NDArray[np.uint64], tables: int) -> list[Self]:
        """Returns what is direct of each of a job's tables, by number; `ids`, uint64 [r], are those of the r rows."""
        if tables == 1 or not len(self):
            return [self] * tables
        parts = parts_of_tables(ids, tables)
        at = [np.flatnonzero(np.isin(self.places, part, assume_unique=True)) for part in parts]
        return [
            type(self)(np.searchsorted(part, self.places[chosen]).astype(np.uint32), self.peers[chosen])
            for part, chosen in zip(parts, at, strict=True)
        ]


NO_DIRECT_ROWS = DirectRows(np.empty(0, np.uint32), np.empty(0, np.uint32))


@dataclass(frozen=True, slots=True)
class TableMoves:
    """What a worker moves of one table in an iteration; the columns are those of IterationPlan.

    `stateless_pulls`, bool [r], says which of the pulled rows come without their optimizer state.
    """

    update_rows: Transfers
    update_gradients: GradientTransfers
    evict_rows: Transfers
    evict_gradients: GradientTransfers
    pulls: Transfers
    direct_pushes: DirectRows
    direct_pulls: DirectRows
    stateless_pulls: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class UsedRows:
    """The rows of one table that a worker trains in an iteration.

    Attributes:
        slots: uint32 [u], in the cache of the table.
        contributors: uint64 [u], the workers that train each of them; 0: it is replicated.
        inverse: uint32 [N], which of them each of the samples' ids in this table is.
    """

    slots: NDArray[np.uint32]
    contributors: NDArray[np.uint64]
    inverse: NDArray[np.uint32]

    def reduced(self) -> NDArray[np.uint32]:
        """Returns the slots of the replicated ones, uint32 [h]."""
        slots: NDArray[np.uint32] = self.slots[self.contributors == 0]
        return slots


@dataclass(frozen=True, slots=True)
class IterationPlan:
    """What one worker does in one iteration, in this order: discards, pushes, drops, pulls, training.

    Attributes:
        epoch: the membership that the plan is for.
        iteration: t, counted from 0.
        batch_size: k, the samples of the global batch; every gradient is divided by it.
        update_rows: rows owned here that another worker needs (update push).
        update_gradients: partial gradients of split rows that some worker needs (update push).
        evict_rows: owned rows that leave the cache (evict push).
        evict_gradients: partial gradients that leave the cache (evict push).
        drops: clean or outdated rows that leave the cache for free; their versions mean nothing.
        pulls: missing or outdated rows to fetch (miss pull); of those in `stateless_pulls`, the values alone.
        positions: uint32 [m], the position of each sample in the global batch.
        unique_ids: uint64 [u], the distinct ids of the worker's samples (U_j), and those of the replicated rows that
            other workers' samples use.
        unique_slots: uint32 [u], the cache slot of each of these rows.
        unique_versions: int64 [u], the version of each of these rows before training.
        unique_contributors: uint64 [u], the workers that train each row now (W_x): one bit means that this
            worker owns the row afterwards, more bits that it holds a partial gradient. Of a replicated row it is the
            bit of the worker that owns it on behalf of all.
        inverse: uint32 [N]: id i of the samples is unique_ids[inverse[i]]. They stand sample by sample, and in each
            feature by feature.
        dense: float32 [m, d], dense features of the worker's samples.
        labels: float32 [m, L], their labels.
        forgotten: uint64 [f], rows that leave the table, in all workers' plans alike. After training, the first member
            has the parameter servers forget them.
        forgotten_below: where the versions of later lives begin (services/domain/versions.py).
        discards: copies of forgotten rows here; their slots are empty afterwards, whatever they owed.
        lengths: uint16 [m, F], how many ids each sample has of each feature; None: exactly one of each, so N = m F.
        weights: float32 [m], what each sample's loss is multiplied by; None: 1.
        groups: uint64 [m], what each sample belongs to; None: unknown.
        reduced: uint32 [h], places among the unique ids, ascending, of the rows that all workers train by the sum of
            their gradients; the same ids in all workers' plans.
        direct_pushes: those of `update_rows` that go straight to the worker that alone trains them now.
        direct_pulls: those of `pulls` that come from the worker that owns them until now.
    """

    epoch: int
    iteration: int
    batch_size: int
    update_rows: Transfers
    update_gradients: GradientTransfers
    evict_rows: Transfers
    evict_gradients: GradientTransfers
    drops: Transfers
    pulls: Transfers
    positions: NDArray[np.uint32]
    unique_ids: NDArray[np.uint64]
    unique_slots: NDArray[np.uint32]
    unique_versions: NDArray[np.int64]
    unique_contributors: NDArray[np.uint64]
    inverse: NDArray[np.uint32]
    dense: NDArray[np.float32]
    labels: NDArray[np.float32]
    forgotten: NDArray[np.uint64]
    forgotten_below: int
    discards: Transfers
    lengths: NDArray[np.uint16] | None = None
    weights: NDArray[np.float32] | None = None
    groups: NDArray[np.uint64] | None = None
    reduced: NDArray[np.uint32] = field(default_factory=lambda: np.empty(0, np.uint32))
    direct_pushes: DirectRows = NO_DIRECT_ROWS
    direct_pulls: DirectRows = NO_DIRECT_ROWS

    def rows_by_table(self, tables: int) -> list[UsedRows]:
        """Returns the rows that the samples use of each of the job's tables, by number."""
        contributors = self.unique_contributors
        if len(self.reduced):
            contributors = contributors.copy()
            contributors[self.reduced] = 0
        if tables == 1:
            return [UsedRows(self.unique_slots, contributors, self.inverse)]
        # Ids ascend, so those of a table lie together.
        ends = np.searchsorted(table_of(self.unique_ids), np.arange(tables), side="right").tolist()
        used = []
        for begin, end in pairwise([0, *ends]):
            inverse = self.inverse[(self.inverse >= begin) & (self.inverse < end)] - np.uint32(begin)
            used.append(UsedRows(self.unique_slots[begin:end], contributors[begin:end], inverse))
        return used

    def moves_by_table(self, tables: int) -> list[TableMoves]:
        """Returns what moves of each of the job's tables, by number."""
        transfers = (self.update_rows, self.update_gradients, self.evict_rows, self.evict_gradients, self.pulls)
        stateless = self.stateless_pulls()
        parts = parts_of_tables(self.pulls.ids, tables)
        columns = (
            *(each.by_table(tables) for each in transfers),
            self.direct_pushes.by_table(self.update_rows.ids, tables),
            self.direct_pulls.by_table(self.pulls.ids, tables),
            [stateless[part] for part in parts],
        )
        return [TableMoves(*each) for each in zip(*columns, strict=True)]

    def stateless_pulls(self) -> NDArray[np.bool_]:
        """Returns which of the pulled rows come without their optimizer state, bool [r].

        Those that several workers train now: the step is taken at the parameter server, and here a partial gradient
        takes the place of the row, which must be pulled again to be used. And those that were never trained in their
        present life: all of their state is 0.
        """
        contributors = self.unique_contributors
        split_ids = self.unique_ids[(contributors & (contributors - np.uint64(1))) != 0]
        before, behind = (np.searchsorted(split_ids, self.pulls.ids, side) for side in ("left", "right"))
        stateless: NDArray[np.bool_] = (behind > before) | (trainings(self.pulls.versions) == 0)
        return stateless


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """Tells a worker to push everything that the parameter server lacks, at the end of the stream or for a checkpoint.

    Attributes:
        epoch: the membership that the plan is for.
        iteration: what is pushed contains the iterations before this one.
        rows: owned rows.
        gradients: partial gradients of split rows.
        checkpoint: whether this is a checkpoint within the stream. Then the worker tells the parameter servers when it
            is done (Cut), and goes on.
    """

    epoch: int
    iteration: int
    rows: Transfers
    gradients: GradientTransfers
    checkpoint: bool = False


@dataclass(frozen=True, slots=True)
class Membership:
    """Tells a worker who trains in an epoch: the first message of every plan stream.

    Attributes:
        slot: the slot of the worker that is told; it is its bit in masks of contributors.
        members: the slots that train in this epoch. A worker's place among them is its rank in the all-reduce group.
        iteration: the first iteration of the epoch; when it is above 0, a Reload comes next.
        peers: where rows go directly, `host:port` of every other member by slot, empty for the others.
        claimant: names a job that takes no checkpoints to the parameter servers; empty for any other.
    """

    epoch: int
    slot: int
    job: JobSpec
    members: WorkerSet
    iteration: int = 0
    peers: tuple[str, ...] = ()
    claimant: bytes = b""

    @property
    def rank(self) -> int:
        """The place of this worker among the members."""
        return list(self.members).index(self.slot)

    @property
    def leads(self) -> bool:
        """Whether this worker is the first member, which does on behalf of all what must be done only once."""
        return self.rank == 0


@dataclass(frozen=True, slots=True)
class Reload:
    """What a worker's cache must hold before the first plan of an epoch that begins at a checkpoint.

    Attributes:
        checkpoint: the checkpoint that holds the dense parameters and their optimizer.
        rows: rows to pull, latest versions.
        outdated: rows whose latest value is elsewhere and whose slots are kept; `versions` are the latest.
        dense_checksum: the SHA-256, in hexadecimal digits, that the dense parameters must have.
    """

    checkpoint: int
    rows: Transfers
    outdated: Transfers
    dense_checksum: str = ""


@dataclass(frozen=True, slots=True)
class EndOfStream:
    """The stream is over after `iterations` iterations."""

    iterations: int


PlanMessage = Membership | Reload | IterationPlan | FlushPlan | EndOfStream


def _half(count: int, *, early: bool) -> slice:
    """Returns where the first so many of a list are, or the others."""
    return slice(0, count) if early else slice(count, None)


def _joined(column: NDArray[Column], early: int, other: NDArray[Column], other_early: int) -> NDArray[Column]:
    """Returns a column of two lists as one of both, with the first so many of each in front."""
    return np.concatenate((column[:early], other[:other_early], column[early:], other[other_early:]))
