"""Push plans: all that one worker does in one iteration, decided by the dispatcher.

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

from esd.services.domain.dense_roles import DenseRole
from esd.services.domain.ids import parts_of_tables, table_of
from esd.services.domain.jobs import JobSpec
from esd.services.domain.versions import continues, trainings
from esd.services.domain.worker_set import WorkerSet, empty, several

Column = TypeVar("Column", bound=np.generic)


@dataclass(frozen=True, slots=True)
class Transfers:
    """r rows to move between a cache and the parameter server.

    Attributes:
        ids: uint64 [r], distinct.
        slots: uint32 [r], cache slots.
        versions: int64 [r]; for rows, the moved version; for gradients, the version that their sum will make.
        early: number of entries, at the beginning, that the previous iteration does not use; they may move while it
            trains.

    Example:
        >>> rows = esd.Transfers(
        ...     ids=np.array([7, 9], np.uint64), slots=np.array([0, 3], np.uint32), versions=np.array([5, 2]), early=1
        ... )
        >>> rows.half(early=True).ids.tolist()
        [7]
    """

    ids: NDArray[np.uint64]
    slots: NDArray[np.uint32]
    versions: NDArray[np.int64]
    early: int

    def __len__(self) -> int:
        return len(self.ids)

    def half(self, *, early: bool) -> Self:
        """Returns the rows that may move while the previous iteration trains, or the others."""
        part = _half(self.early, early=early)
        return type(self)(self.ids[part], self.slots[part], self.versions[part], self.early if early else 0)

    def joined(self, others: Self) -> Self:
        """Returns these rows and others as one list, the early rows of both first."""
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
        """Returns the rows at the given places, which ascend."""
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
        rows: the rows of the gradients, with the version that each sum will make.
        contributors: uint64 [r], bit w is set when worker slot w contributes; in a job of more than 64 workers
            uint64 [r, 2], the lower word first.
        steps: int64 [r], the optimizer step (iteration + 1) that produced each gradient.

    Example:
        >>> rows = esd.Transfers(np.array([7], np.uint64), np.array([0], np.uint32), np.array([6]), early=0)
        >>> gradients = esd.GradientTransfers(rows, contributors=np.array([0b11], np.uint64), steps=np.array([12]))
        >>> len(gradients)
        1
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
        """Returns these gradients and others as one list, the early gradients of both first."""
        if not len(others):
            return self
        if not len(self):
            return others
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
    """The d of r rows to push, or to pull, that go directly between workers (Herald App. B).

    Attributes:
        places: uint32 [d], the places of the direct rows among the r rows, ascending.
        peers: uint32 [d], the slot of the receiving worker of a push, or of the sending worker of a pull.
    """

    places: NDArray[np.uint32]
    peers: NDArray[np.uint32]

    def __len__(self) -> int:
        return len(self.places)

    def by_table(self, ids: NDArray[np.uint64], tables: int) -> list[Self]:
        """Splits the direct rows by table; `ids`, uint64 [r], are the ids of the r rows."""
        if tables == 1 or not len(self):
            return [self] * tables
        parts = parts_of_tables(ids, tables)
        at = [np.flatnonzero(np.isin(self.places, part, assume_unique=True)) for part in parts]
        return [
            type(self)(np.searchsorted(part, self.places[chosen]).astype(np.uint32), self.peers[chosen])
            for part, chosen in zip(parts, at, strict=True)
        ]


NO_DIRECT_ROWS = DirectRows(np.empty(0, np.uint32), np.empty(0, np.uint32))
NO_IDS = np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True)
class TableMoves:
    """The moves of one table in an iteration, in the columns of IterationPlan.

    Attributes:
        stateless_pulls: bool [r], whether a pulled row comes without its optimizer state.
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
class InitialRows:
    """The ids of one table that a worker's samples read in an iteration, and that are not admitted yet.

    Attributes:
        ids: uint64 [v], distinct and ascending.
        inverse: uint32 [M], for each of their occurrences in the samples the index of its id.
        among: bool [N + M], for each of the samples' ids in this table whether it is among `ids`.
    """

    ids: NDArray[np.uint64]
    inverse: NDArray[np.uint32]
    among: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class UsedRows:
    """The rows of one table that a worker trains in an iteration.

    Attributes:
        slots: uint32 [u], in the cache of the table.
        contributors: uint64 [u] or [u, 2], the workers that train each row; 0 for a replicated row.
        inverse: uint32 [N], for each of the samples' ids in this table the index of its row. With initial rows it has
            the ids that are trained, alone.
        initial: the other ids; None: there are none.
    """

    slots: NDArray[np.uint32]
    contributors: NDArray[np.uint64]
    inverse: NDArray[np.uint32]
    initial: InitialRows | None = None

    def reduced(self) -> NDArray[np.uint32]:
        """Returns the slots of the replicated rows, uint32 [h]."""
        slots: NDArray[np.uint32] = self.slots[empty(self.contributors)]
        return slots


@dataclass(frozen=True, slots=True)
class IterationPlan:
    """The plan of one worker for one iteration, in this order: discards, pushes, drops, pulls, training.

    Attributes:
        epoch: the epoch of the membership.
        iteration: t, counted from 0.
        batch_size: k, the number of samples of the global batch; every gradient is divided by it.
        update_rows: rows owned here that another worker needs (update push).
        update_gradients: partial gradients of split rows that a worker needs (update push).
        evict_rows: owned rows that leave the cache (evict push).
        evict_gradients: partial gradients that leave the cache (evict push).
        drops: clean or outdated rows that leave the cache without a push; their versions have no meaning.
        pulls: missing or outdated rows to fetch (miss pull), some of them without state (`stateless_pulls`).
        positions: uint32 [m], the position of each sample in the global batch.
        unique_ids: uint64 [u], the distinct ids of the worker's samples (U_j), and the ids of the replicated rows that
            other workers' samples use.
        unique_slots: uint32 [u], the cache slot of each of these rows.
        unique_versions: int64 [u], the version of each of these rows before training.
        unique_contributors: uint64 [u], the workers that train each row now (W_x): one bit means that this
            worker owns the row afterwards, more bits that it holds a partial gradient. For a replicated row it is the
            bit of the worker that owns the row on behalf of all.
        inverse: uint32 [N]: id i of the samples is unique_ids[inverse[i]], or initial_ids[inverse[i] - u]. Ids are in
            the order of the samples, and within a sample in the order of the features.
        dense: float32 [m, d], dense features of the worker's samples.
        labels: float32 [m, L], their labels.
        forgotten: uint64 [f], rows that leave the table, the same in all workers' plans. After training, the first
            member has the parameter servers remove them.
        forgotten_below: the version with which later lives begin (esd.services.domain.versions).
        discards: copies of forgotten rows here; their slots are empty afterwards, and their gradients are lost.
        lengths: uint32 [m, F], number of ids of each feature of each sample; None: one of each, so N = m F.
        weights: float32 [m], the factor of each sample's loss; None: 1.
        groups: uint64 [m], the group of each sample; None: unknown.
        references: uint64 [m], to dense features and labels at the worker's site; d, L are 0 then. None: they are here.
        reduced: uint32 [h], places among the unique ids, ascending, of the rows that all workers train by the sum of
            their gradients; the same ids in all workers' plans.
        direct_pushes: the rows of `update_rows` that go directly to the only worker that trains them now.
        direct_pulls: the rows of `pulls` that come directly from their present owner.
        initial_ids: uint64 [v], the distinct ids of the worker's samples that are not admitted yet, ascending. The
            worker makes their initial rows, and trains none of them.
        chunks: uint32 [c], the chunks of the global batch that have samples here, ascending, in a job with negatives.
            The ids of their lists follow the ids of the samples in `inverse`, list by list.
        trace_parent: the span of the plan's decision, as W3C's traceparent; empty unless the iteration is traced.
        dense_role: the use of the worker's copy of the dense parameters.

    Example:
        The first plan of a worker whose cache is empty: it pulls the two rows of its sample.

        >>> job = esd.load("model").job
        >>> batch = next(iter(esd.read("events.csv", esd.Schema("clicked", ids=("user", "item"), dense=("price",)))))
        >>> worker = esd.Registration("edge-1", bandwidth=1e6, cache_rows=100, address="edge-1:7000")
        >>> with esd.DispatcherClient("127.0.0.1:50051") as dispatcher:
        ...     is_new = dispatcher.create_job(job)
        ...     with dispatcher.attend(dispatcher.register(worker)) as attendance:
        ...         samples = dispatcher.submit(job.name, [batch])
        ...         membership, plan = itertools.islice(attendance, 2)
        >>> plan.iteration, len(plan.labels), len(plan.pulls)
        (0, 1, 2)
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
    lengths: NDArray[np.uint32] | None = None
    weights: NDArray[np.float32] | None = None
    groups: NDArray[np.uint64] | None = None
    references: NDArray[np.uint64] | None = None
    reduced: NDArray[np.uint32] = field(default_factory=lambda: np.empty(0, np.uint32))
    direct_pushes: DirectRows = NO_DIRECT_ROWS
    direct_pulls: DirectRows = NO_DIRECT_ROWS
    initial_ids: NDArray[np.uint64] = field(default_factory=lambda: NO_IDS)
    chunks: NDArray[np.uint32] = field(default_factory=lambda: np.empty(0, np.uint32))
    trace_parent: str = ""
    dense_role: DenseRole = DenseRole.TRAINS

    def rows_by_table(self, tables: int) -> list[UsedRows]:
        """Returns the rows that the samples use of each of the job's tables, by number."""
        contributors = self.unique_contributors
        if len(self.reduced):
            contributors = contributors.copy()
            contributors[self.reduced] = 0
        if len(self.initial_ids):
            return self._rows_with_initial(contributors, tables)
        if tables == 1:
            return [UsedRows(self.unique_slots, contributors, self.inverse)]
        # Ids ascend, so the ids of a table are contiguous.
        ends = np.searchsorted(table_of(self.unique_ids), np.arange(tables), side="right").tolist()
        used = []
        for begin, end in pairwise([0, *ends]):
            inverse = self.inverse[(self.inverse >= begin) & (self.inverse < end)] - np.uint32(begin)
            used.append(UsedRows(self.unique_slots[begin:end], contributors[begin:end], inverse))
        return used

    def _rows_with_initial(self, contributors: NDArray[np.uint64], tables: int) -> list[UsedRows]:
        """Returns `rows_by_table` of a plan with initial ids, given the contributors with 0 for replicated rows."""
        unique = len(self.unique_ids)
        ends = [
            [len(ids)] if tables == 1 else np.searchsorted(table_of(ids), np.arange(tables), side="right").tolist()
            for ids in (self.unique_ids, self.initial_ids)
        ]
        used, begin, first = [], 0, 0
        for end, last in zip(*ends, strict=True):
            trained = (self.inverse >= begin) & (self.inverse < end)
            initial = (self.inverse >= unique + first) & (self.inverse < unique + last)
            rows = InitialRows(
                self.initial_ids[first:last],
                self.inverse[initial] - np.uint32(unique + first),
                initial[trained | initial],
            )
            inverse = self.inverse[trained] - np.uint32(begin)
            used.append(UsedRows(self.unique_slots[begin:end], contributors[begin:end], inverse, rows))
            begin, first = end, last
        return used

    def moves_by_table(self, tables: int) -> list[TableMoves]:
        """Returns the moves of each of the job's tables, by number."""
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
        """Returns whether each pulled row comes without its optimizer state, bool [r].

        A row that several workers train now does: the parameter server takes the step, and here a partial gradient
        replaces the row, which must be pulled again before its next use. So does a row that was never trained in its
        present life: its state is 0. Of a row that continues an earlier life, the parameter server sends no state if it
        was never trained.
        """
        split_ids = self.unique_ids[several(self.unique_contributors)]
        before, behind = (np.searchsorted(split_ids, self.pulls.ids, side) for side in ("left", "right"))
        versions = self.pulls.versions
        stateless: NDArray[np.bool_] = (behind > before) | (trainings(versions) == 0) & ~continues(versions)
        return stateless


@dataclass(frozen=True, slots=True)
class FlushPlan:
    """Has a worker push all rows and gradients that the parameter server lacks, at the end or for a checkpoint.

    Attributes:
        epoch: the epoch of the membership.
        iteration: the pushes contain all iterations before this one.
        rows: owned rows.
        gradients: partial gradients of split rows.
        checkpoint: whether this is a checkpoint within the stream. Then the worker reports its cut to the parameter
            servers, and continues.
        stores_dense: whether this worker stores the dense parameters, as one of the members does.

    Example:
        >>> rows = esd.Transfers(np.array([7], np.uint64), np.array([0], np.uint32), np.array([5]), early=0)
        >>> none = esd.GradientTransfers(rows.half(early=True), np.empty(0, np.uint64), np.empty(0, np.int64))
        >>> plan = esd.FlushPlan(epoch=1, iteration=100, rows=rows, gradients=none, checkpoint=True)
        >>> len(plan.rows), len(plan.gradients)
        (1, 0)
    """

    epoch: int
    iteration: int
    rows: Transfers
    gradients: GradientTransfers
    checkpoint: bool = False
    stores_dense: bool = False


@dataclass(frozen=True, slots=True)
class Membership:
    """The members of an epoch: the first message of every plan stream.

    Attributes:
        epoch: the epoch.
        slot: the slot of the receiving worker; it is its bit in masks of contributors.
        job: the job.
        members: the slots that train in this epoch. The index of a worker among them is its rank in the all-reduce
            group.
        iteration: the first iteration of the epoch; when it is above 0, a Reload follows.
        peers: `host:port` of every other member by slot, to which rows go directly; empty strings for other slots.
        claimant: identifies a job without checkpoints to the parameter servers; empty for a job with checkpoints.

    Example:
        >>> from esd.services.domain.worker_set import WorkerSet
        >>> job = esd.load("model").job
        >>> membership = esd.Membership(epoch=1, slot=3, job=job, members=WorkerSet.of([1, 3]))
        >>> membership.rank, membership.leads
        (1, False)
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
        """The index of this worker among the members."""
        return list(self.members).index(self.slot)

    @property
    def leads(self) -> bool:
        """Whether this worker is the first member, which acts where one member acts for all."""
        return self.rank == 0


@dataclass(frozen=True, slots=True)
class Reload:
    """The content of a worker's cache before the first plan of an epoch that begins at a checkpoint.

    Attributes:
        checkpoint: the checkpoint with the dense parameters and their optimizer.
        rows: rows to pull, at their latest versions.
        outdated: rows that keep their slots although their latest value is elsewhere; `versions` are the latest.
        dense_checksum: the SHA-256 of the dense parameters, in hexadecimal digits.

    Example:
        >>> latest = esd.Transfers(np.array([7], np.uint64), np.array([0], np.uint32), np.array([5]), early=0)
        >>> reload = esd.Reload(checkpoint=100, rows=latest, outdated=latest.half(early=True))
        >>> reload.rows.ids.tolist(), len(reload.outdated)
        ([7], 0)
    """

    checkpoint: int
    rows: Transfers
    outdated: Transfers
    dense_checksum: str = ""


@dataclass(frozen=True, slots=True)
class EndOfStream:
    """The stream is over after `iterations` iterations.

    Example:
        >>> esd.EndOfStream(iterations=100).iterations
        100
    """

    iterations: int


PlanMessage = Membership | Reload | IterationPlan | FlushPlan | EndOfStream


def _half(count: int, *, early: bool) -> slice:
    """Returns the slice of the first `count` entries of a list, or of the others."""
    return slice(0, count) if early else slice(count, None)


def _joined(column: NDArray[Column], early: int, other: NDArray[Column], other_early: int) -> NDArray[Column]:
    """Joins a column of two lists, with the early entries of both in front."""
    return np.concatenate((column[:early], other[:other_early], column[early:], other[other_early:]))
