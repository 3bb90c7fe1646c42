"""The cache book in plain numpy: the specification of the native one (native/cache_book/cache_book.h)."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.plans import FlushPlan, GradientTransfers, IterationPlan, Reload, Transfers
from tests.support.worker_sets import listed


class SlotState(IntEnum):
    """The content of a cache slot."""

    EMPTY = 0
    CLEAN = 1  # a row that the parameter server has too; others may have outdated it since
    OWNED = 2  # the only copy of the row's latest value
    PARTIAL = 3  # this worker's gradient of a split row
    SPENT = 4  # a gradient that has been pushed: the slot is kept for its row, which must be pulled to be used


class ReferenceCacheBook:
    """Follows the plans of one worker and refuses one that does not fit the cache.

    The book is ahead of the tensors: a plan is entered when it arrives, before any of its rows move and while the
    iteration before it may still train. Entering is all or nothing. The cache is empty at first.

    Args:
        rows: C, slots of the cache.
        worker: this worker's slot in the job.
        epoch: the epoch that all plans must belong to.
        first_iteration: of the epoch.
    """

    def __init__(self, rows: int, worker: int, epoch: int, first_iteration: int = 0) -> None:
        self._ids = np.zeros(rows, np.uint64)
        self._versions = np.zeros(rows, np.int64)
        self._states = np.full(rows, SlotState.EMPTY, np.uint8)
        self._worker = worker
        self._epoch = epoch
        self._next_iteration = first_iteration

    @property
    def next_iteration(self) -> int:
        """The iteration whose plan comes next."""
        return self._next_iteration

    @property
    def cached_rows(self) -> int:
        """The number of slots in use."""
        return int(np.count_nonzero(self._states))

    def enter(self, plan: IterationPlan) -> None:
        """Enters everything the plan does, up to the states after training.

        Raises:
            FailedPrecondition: the plan does not fit; the book is unchanged.
        """
        self._check_order(plan.epoch, plan.iteration)
        self._check_samples(plan)
        pushes = (plan.update_rows, plan.update_gradients.rows, plan.evict_rows, plan.evict_gradients.rows)
        touched = self._touched_slots(
            [t.slots for t in (*pushes, plan.discards, plan.drops, plan.pulls)] + [plan.unique_slots]
        )
        saved = (self._ids[touched], self._versions[touched], self._states[touched])
        try:
            self._discard(plan.discards)
            self._push_rows(plan.update_rows, "update push", SlotState.CLEAN)
            self._push_gradients(plan.update_gradients, "update push", SlotState.SPENT)
            self._push_rows(plan.evict_rows, "evict push", SlotState.EMPTY)
            self._push_gradients(plan.evict_gradients, "evict push", SlotState.EMPTY)
            self._drop(plan.drops)
            self._pull(plan.pulls)
            self._train(plan)
        except FailedPrecondition:
            self._ids[touched], self._versions[touched], self._states[touched] = saved
            raise
        self._next_iteration += 1

    def enter_reload(self, reload: Reload) -> None:
        """Enters the reload of an empty cache at the beginning of an epoch.

        Raises:
            FailedPrecondition: the reload does not fit the cache; the book is unchanged.
        """
        slots = self._touched_slots([np.concatenate([reload.rows.slots, reload.outdated.slots])])
        if self.cached_rows:
            raise FailedPrecondition(f"a reload is for an empty cache, this one holds {self.cached_rows} rows")
        self._ids[slots] = np.concatenate([reload.rows.ids, reload.outdated.ids])
        self._versions[slots] = np.concatenate([reload.rows.versions, reload.outdated.versions])
        self._states[reload.rows.slots] = SlotState.CLEAN
        self._states[reload.outdated.slots] = SlotState.SPENT

    def enter_flush(self, plan: FlushPlan) -> None:
        """Enters a flush: afterwards the parameter server has everything.

        Raises:
            FailedPrecondition: the plan does not fit or leaves something behind; the book is unchanged.
        """
        self._check_order(plan.epoch, plan.iteration)
        touched = self._touched_slots([plan.rows.slots, plan.gradients.rows.slots])
        saved = self._states[touched]
        try:
            self._push_rows(plan.rows, "flush", SlotState.CLEAN)
            self._push_gradients(plan.gradients, "flush", SlotState.SPENT)
            left = np.flatnonzero((self._states == SlotState.OWNED) | (self._states == SlotState.PARTIAL))
            if len(left):
                raise FailedPrecondition(
                    f"flush: the plan leaves {len(left)} unpushed rows behind, first: {self._holding(int(left[0]))}"
                )
        except FailedPrecondition:
            self._states[touched] = saved
            raise

    # The steps of a plan, in its order. Each checks its whole column, then enters it.

    def _push_rows(self, rows: Transfers, step: str, after: SlotState) -> None:
        self._expect_holding(rows, step, SlotState.OWNED, rows.versions)
        self._states[rows.slots] = after

    def _push_gradients(self, gradients: GradientTransfers, step: str, after: SlotState) -> None:
        rows = gradients.rows
        self._expect_holding(rows, step, SlotState.PARTIAL, rows.versions)
        self._expect_contributor(rows.ids, gradients.contributors, step)
        self._states[rows.slots] = after

    def _discard(self, discards: Transfers) -> None:
        fits = (self._ids[discards.slots] == discards.ids) & (self._states[discards.slots] != SlotState.EMPTY)
        self._refuse_unless(fits, discards.slots, lambda r: f"discard: id {discards.ids[r]}")
        self._states[discards.slots] = SlotState.EMPTY

    def _drop(self, drops: Transfers) -> None:
        fits = self._ids[drops.slots] == drops.ids
        fits &= np.isin(self._states[drops.slots], (SlotState.CLEAN, SlotState.SPENT))
        self._refuse_unless(fits, drops.slots, lambda r: f"drop: id {drops.ids[r]} with nothing unpushed")
        self._states[drops.slots] = SlotState.EMPTY

    def _pull(self, pulls: Transfers) -> None:
        states = self._states[pulls.slots]
        same_row = self._ids[pulls.slots] == pulls.ids
        outdated = (states == SlotState.CLEAN) & (self._versions[pulls.slots] <= pulls.versions)
        fits = (states == SlotState.EMPTY) | (same_row & ((states == SlotState.SPENT) | outdated))
        self._refuse_unless(
            fits,
            pulls.slots,
            lambda r: (
                f"pull of id {pulls.ids[r]} version {pulls.versions[r]}: an empty slot or a copy that is not newer"
            ),
        )
        self._ids[pulls.slots] = pulls.ids
        self._versions[pulls.slots] = pulls.versions
        self._states[pulls.slots] = SlotState.CLEAN

    def _train(self, plan: IterationPlan) -> None:
        slots = plan.unique_slots
        fits = (self._ids[slots] == plan.unique_ids) & (self._versions[slots] == plan.unique_versions)
        fits &= (self._states[slots] == SlotState.CLEAN) | (self._states[slots] == SlotState.OWNED)
        self._refuse_unless(
            fits, slots, lambda r: f"training: id {plan.unique_ids[r]} at version {plan.unique_versions[r]}"
        )
        replicated = np.isin(np.arange(len(slots)), plan.reduced)
        self._expect_contributor(plan.unique_ids[~replicated], plan.unique_contributors[~replicated], "training")
        self._versions[slots] += 1
        alone = np.array([workers == 1 << self._worker for workers in listed(plan.unique_contributors)], np.bool_)
        shared = np.where(replicated, SlotState.CLEAN, SlotState.PARTIAL)
        self._states[slots] = np.where(alone, SlotState.OWNED, shared)

    # Checks

    def _check_order(self, epoch: int, iteration: int) -> None:
        if epoch != self._epoch:
            raise FailedPrecondition(f"plan of epoch {epoch} refused: this worker is in epoch {self._epoch}")
        if iteration != self._next_iteration:
            raise FailedPrecondition(f"plan of iteration {iteration} refused: expected {self._next_iteration}")

    def _check_samples(self, plan: IterationPlan) -> None:
        rows = len(plan.unique_ids) + len(plan.initial_ids)
        if plan.inverse.size and int(plan.inverse.max()) >= rows:
            raise FailedPrecondition(f"inverse names row {int(plan.inverse.max())}, the plan has {rows} rows")
        if plan.batch_size < len(plan.labels):
            raise FailedPrecondition(f"{len(plan.labels)} samples given, the global batch has {plan.batch_size}")

    def _touched_slots(self, columns: list[NDArray[np.uint32]]) -> NDArray[np.uint32]:
        """Joins columns of slots, each of which must lie in the cache and name a slot only once."""
        for slots in columns:
            ordered = np.sort(slots)
            if len(ordered) and int(ordered[-1]) >= len(self._ids):
                raise FailedPrecondition(
                    f"slot {ordered[-1]} does not exist: the cache has room for {len(self._ids)} rows"
                )
            repeated = np.flatnonzero(ordered[1:] == ordered[:-1])
            if len(repeated):
                raise FailedPrecondition(f"slot {ordered[repeated[0]]} is named twice in one list of the plan")
        return np.concatenate(columns)

    def _expect_holding(self, rows: Transfers, step: str, state: SlotState, versions: NDArray[np.int64]) -> None:
        fits = (self._ids[rows.slots] == rows.ids) & (self._versions[rows.slots] == versions)
        fits &= self._states[rows.slots] == state
        self._refuse_unless(
            fits, rows.slots, lambda r: f"{step}: id {rows.ids[r]} at version {versions[r]}, {state.name.lower()}"
        )

    def _expect_contributor(self, ids: NDArray[np.uint64], contributors: NDArray[np.uint64], step: str) -> None:
        for row, workers in zip(ids.tolist(), listed(contributors), strict=True):
            if not workers >> self._worker & 1:
                raise FailedPrecondition(
                    f"{step} of id {row}: contributors {workers:#x} do not include this worker (slot {self._worker})"
                )

    def _refuse_unless(
        self, fits: NDArray[np.bool_], slots: NDArray[np.uint32], expectation: Callable[[int], str]
    ) -> None:
        if not fits.all():
            first = int(np.argmin(fits))
            raise FailedPrecondition(
                f"plan of iteration {self._next_iteration} does not fit the cache, {expectation(first)} expected, "
                f"but {self._holding(int(slots[first]))}"
            )

    def _holding(self, slot: int) -> str:
        state = SlotState(self._states[slot])
        if state is SlotState.EMPTY:
            return f"slot {slot} is empty"
        return f"slot {slot} holds id {self._ids[slot]} at version {self._versions[slot]}, {state.name.lower()}"
