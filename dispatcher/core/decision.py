"""One planned iteration: its assignment, its transfers and their cost, and the plans of the workers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.admission import AdmittedBatch
from esd.dispatcher.core.cost_model import CostModel, Operations
from esd.services.domain.batches import SampleBatch
from esd.services.domain.dense_roles import DenseRole
from esd.services.domain.negatives import SamplesWithLists, without_lists
from esd.services.domain.plans import DirectRows, FlushPlan, GradientTransfers, IterationPlan, Reload, Transfers
from esd.services.domain.sync import Figures

if TYPE_CHECKING:  # the shapes of the engine's dicts exist in its stub only
    from esd.native.engine import (
        CacheColumns,
        FlushColumns,
        GradientColumns,
        IterationColumns,
        PlanColumns,
        TransferColumns,
    )


@dataclass(frozen=True)
class Decision:
    """One planned iteration.

    Attributes:
        iteration: t, counted from 0.
        assignment: int32 [k], the worker of each sample.
        batch: the k samples.
        admitted: the same with their admitted ids; None if the job admits every id at once.
        with_lists: the samples with their workers' lists of negatives; None if the job has no negatives.
        epoch: the membership that the plans are for.
        columns: the engine's plan of each worker, in slot order.
        operations: rows moved, per worker and kind.
        moved_bytes: bytes of these operations: rows with their optimizer state, partial gradients without it, and the
            ids, versions and the like of each.
        unsent_bytes: int64 [n], bytes among them that do not cross the links, since workers make rows that were never
            trained.
        reduced_bytes: int64 [n], bytes that each worker sends to the next to sum the gradients of replicated rows.
        direct_rows: int64 [n], number of update pushes that go straight to the worker that trains the row now.
        direct_bytes: int64 [n], bytes of these pushes, included in `moved_bytes`.
        sync_figures: the figures of the way to synchronise.
        cost_model: the cost model of these operations.
        expected_cost_seconds: the mechanism's own estimate, the sum over samples of ESD Alg. 1's cost, which
            counts an id once per sample; 0 for a mechanism that makes no estimate.
        worker_lookups: int64 [n], rows that each worker's samples use.
        worker_hits: int64 [n], rows among them with the latest version in the worker's cache.
        forgotten_rows: number of rows removed from the table to keep it within its limit.
        expired_rows: number of rows removed from the tables because their time to live is over.
        roles: uint32 [n], the DenseRole of each worker.
        held_back: int32 [n], the samples for whose rows a worker's cache has room; 0 if the cache does not limit it.
        solver: the solver that ran, "" for a mechanism without one.
        gap: the solver's certificate: cost minus dual bound, 0 proves optimality; None without a certificate.
        budget_seconds: time limit of the assignment; infinite without a limit.
        efforts: the amounts of work that the assignment did within its limit; see esd.dispatcher.core.decision_time.
        seconds: wall time of this decision by phase: `index` (looking the batch up), `score` (costs or
            affinities), `assign` (the assignment), `plan` (advancing the state, the columns of the plans), and `encode`
            once the messages are made.
    """

    iteration: int
    assignment: NDArray[np.int32]
    batch: SampleBatch
    admitted: AdmittedBatch | None
    with_lists: SamplesWithLists | None
    epoch: int
    columns: IterationColumns
    operations: Operations
    moved_bytes: Operations
    unsent_bytes: NDArray[np.int64]
    reduced_bytes: NDArray[np.int64]
    direct_rows: NDArray[np.int64]
    direct_bytes: NDArray[np.int64]
    sync_figures: Figures
    cost_model: CostModel
    expected_cost_seconds: float
    worker_lookups: NDArray[np.int64]
    worker_hits: NDArray[np.int64]
    forgotten_rows: int
    expired_rows: int
    roles: NDArray[np.uint32]
    held_back: NDArray[np.int32]
    solver: str
    gap: float | None
    budget_seconds: float
    efforts: list[int]
    seconds: dict[str, float]

    @cached_property
    def plans(self) -> tuple[IterationPlan, ...]:
        """One plan per worker, in slot order, built from the columns at the first use."""
        parts = self.batch, self.with_lists, self.epoch
        return tuple(
            _iteration_plan(columns, DenseRole(role), *parts)
            for columns, role in zip(self.columns, self.roles.tolist(), strict=True)
        )

    @cached_property
    def messages(self) -> tuple[bytes, ...]:
        """The encoded plan of each worker, in slot order, built from the columns at the first use."""
        started = time.perf_counter()
        batch = self.batch if self.with_lists is None else self.with_lists.samples
        dense, labels = np.ascontiguousarray(batch.dense), np.ascontiguousarray(batch.labels)
        optional = {name: getattr(batch, name) for name in ("lengths", "weights", "groups", "references")}
        given = {name: np.ascontiguousarray(column) for name, column in optional.items() if column is not None}
        if self.with_lists is not None:
            given["chunks"] = self.with_lists.chunks
        given["roles"] = self.roles
        messages = tuple(self.columns.messages(self.epoch, dense, labels, **given))
        self.seconds["encode"] = time.perf_counter() - started
        return messages

    @property
    def initial_pulls(self) -> NDArray[np.int64]:
        """Pulls of each worker, int64 [n], of rows that were never trained.

        Of a row that the planner has forgotten since, this is an estimate; the parameter server knows it.
        """
        pulls: NDArray[np.int64] = self.columns.table_counts[:, 8].sum(axis=0)
        return pulls

    @property
    def trained_samples(self) -> SampleBatch:
        """The samples with the ids that are trained."""
        return self.batch if self.admitted is None else self.admitted.samples

    @property
    def admitted_rows(self) -> int:
        """Number of ids that the iteration admits to the tables; 0 for a job that admits every id at once."""
        return 0 if self.admitted is None else self.admitted.admitted

    @property
    def initial_reads(self) -> int:
        """Number of distinct ids whose initial row the iteration reads, since they are not admitted yet."""
        return 0 if self.admitted is None else self.admitted.initial

    @property
    def plan_bytes(self) -> int:
        """Bytes of all workers' encoded plans."""
        return sum(map(len, self.messages))

    @property
    def plan_seconds(self) -> float:
        """Time of all workers' plans on their links. The cost excludes it, as in the papers' definition."""
        return float(self.cost_model.seconds_of([len(message) for message in self.messages]).sum())

    @property
    def reduced_seconds(self) -> float:
        """Time of the gradients of replicated rows on their workers' links. It is no part of the cost, either."""
        return float(self.cost_model.seconds_of(self.reduced_bytes).sum())

    @cached_property
    def workloads(self) -> NDArray[np.int32]:
        """Samples of each worker, int32 [n]."""
        return np.bincount(self.assignment, minlength=len(self.worker_lookups)).astype(np.int32)

    @cached_property
    def link_seconds(self) -> NDArray[np.float64]:
        """Realised time on each link, float64 [n]."""
        return self.cost_model.link_seconds(self.moved_bytes)

    @property
    def cost_seconds(self) -> float:
        """Realised cost: the time of all operations on their links (ESD eq. 4)."""
        return float(self.link_seconds.sum())

    @property
    def makespan_seconds(self) -> float:
        """Realised time on the busiest link, when all work at once."""
        return float(self.link_seconds.max())

    @property
    def lookups(self) -> int:
        """(row, worker) pairs that the iteration's samples use."""
        return int(self.worker_lookups.sum())

    @property
    def hits(self) -> int:
        """Lookups that find the latest version in the worker's cache, or a version that the job accepts as current."""
        return int(self.worker_hits.sum())

    @property
    def decision_seconds(self) -> float:
        """Wall time of this decision up to the columns of its plans; once messages are encoded, including that."""
        return sum(self.seconds.values())


def _iteration_plan(
    columns: PlanColumns, role: DenseRole, batch: SampleBatch, with_lists: SamplesWithLists | None, epoch: int
) -> IterationPlan:
    """Makes one worker's plan from its samples and its columns of `Engine.commit`, which have the plan's names."""
    positions, size, lists = columns["positions"], len(batch), 0
    parts: dict[str, Any] = {name: _transfers_of(column) for name, column in columns.items()}
    if with_lists is not None:
        batch, lists = with_lists.samples, int((positions >= size).sum())
        parts["positions"] = np.concatenate((positions[: len(positions) - lists], _chunks(with_lists, positions, size)))
    parts |= {
        "dense": batch.dense[positions],
        "labels": batch.labels[positions],
        "lengths": None if batch.lengths is None else batch.lengths[positions],
        "weights": None if batch.weights is None else batch.weights[positions],
        "groups": None if batch.groups is None else batch.groups[positions],
        "references": None if batch.references is None else batch.references[positions],
        "dense_role": role,
    }
    return IterationPlan(epoch=epoch, batch_size=size, **without_lists(parts, lists))


def _chunks(with_lists: SamplesWithLists, positions: NDArray[np.uint32], samples: int) -> NDArray[np.uint32]:
    """Returns the chunks of a worker's lists, which are the positions after the samples."""
    return with_lists.chunks[positions[positions >= samples] - samples]


def _transfers_of(column: Any) -> Any:
    """Converts a dict of columns to its type in a plan; returns any other column unchanged."""
    if not isinstance(column, dict):
        return column
    if "places" in column:
        return DirectRows(column["places"], column["peers"])
    return _gradients(column) if "contributors" in column else _rows(column)  # type: ignore[arg-type]


def _rows(columns: TransferColumns) -> Transfers:
    return Transfers(columns["ids"], columns["slots"], columns["versions"], columns["early"])


def _gradients(columns: GradientColumns) -> GradientTransfers:
    return GradientTransfers(_rows(columns), columns["contributors"], columns["steps"])


def flush_plan(columns: FlushColumns, epoch: int, *, checkpoint: bool, stores_dense: bool) -> FlushPlan:
    """Returns one worker's flush, from its columns of `Engine.flush`."""
    return FlushPlan(
        epoch=epoch,
        iteration=columns["iteration"],
        rows=_rows(columns["rows"]),
        gradients=_gradients(columns["gradients"]),
        checkpoint=checkpoint,
        stores_dense=stores_dense,
    )


def reload_plan(columns: CacheColumns, checkpoint: int) -> Reload:
    """Returns the content of one worker's cache after a checkpoint, from its columns of `Engine.contents`."""

    def part(chosen: NDArray[np.bool_]) -> Transfers:
        ids = columns["ids"][chosen]
        return Transfers(ids, columns["slots"][chosen], columns["versions"][chosen], early=len(ids))

    return Reload(checkpoint, rows=part(columns["latest"]), outdated=part(~columns["latest"]))
