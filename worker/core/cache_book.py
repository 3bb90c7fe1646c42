"""The bookkeeping of a worker's cache: the row in each slot, and the check of every plan against it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from esd.native.cache_book import Misfit, SlotBook
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.plans import FlushPlan, GradientTransfers, IterationPlan, Reload, Transfers

if TYPE_CHECKING:  # these types exist only in the kernel's stub
    from esd.native.cache_book import Gradients, Rows


class CacheBook:
    """Follows the plans of one worker and refuses a plan that does not fit the cache.

    The book is ahead of the tensors: a plan is entered when it arrives, before any of its rows move and possibly while
    the iteration before it still trains. A plan is entered completely or not at all. The cache is empty at first.

    Args:
        rows: number of slots that each table of the job may use, by the table's number.
        worker: this worker's slot in the job.
        epoch: the epoch that all plans must belong to.
        first_iteration: the first iteration of the epoch.
        keeps_copies: whether this worker trains its own copies of rows that others train, too (`Sync.keeps_copies`).
    """

    def __init__(
        self, rows: Sequence[int], worker: int, epoch: int, first_iteration: int = 0, *, keeps_copies: bool = False
    ) -> None:
        self._slots = SlotBook(rows, worker, keeps_copies)
        self._epoch = epoch
        self._next_iteration = first_iteration

    @property
    def next_iteration(self) -> int:
        """The iteration of the next plan."""
        return self._next_iteration

    @property
    def cached_rows(self) -> int:
        """The number of slots in use."""
        return self._slots.cached

    def enter(self, plan: IterationPlan) -> None:
        """Enters all operations of a plan, up to the states after training.

        Raises:
            FailedPrecondition: the plan does not fit; the book is unchanged.
        """
        self._check_order(plan.epoch, plan.iteration)
        _check_samples(plan)
        with _misfits_refused():
            self._slots.enter(
                self._plan_text(),
                _rows(plan.discards),
                _rows(plan.update_rows),
                _gradients(plan.update_gradients),
                _rows(plan.evict_rows),
                _gradients(plan.evict_gradients),
                _rows(plan.drops),
                _rows(plan.pulls),
                (plan.unique_ids, plan.unique_slots, plan.unique_versions, plan.unique_contributors),
                plan.reduced,
            )
        self._next_iteration += 1

    def enter_reload(self, reload: Reload) -> None:
        """Enters the rows that an empty cache receives at the beginning of an epoch.

        Raises:
            FailedPrecondition: the reload does not fit the cache; the book is unchanged.
        """
        with _misfits_refused():
            self._slots.enter_reload(_rows(reload.rows), _rows(reload.outdated))

    def enter_flush(self, plan: FlushPlan) -> None:
        """Enters a flush, after which the parameter server has all updates.

        Raises:
            FailedPrecondition: the plan does not fit, or leaves an update unpushed; the book is unchanged.
        """
        self._check_order(plan.epoch, plan.iteration)
        with _misfits_refused():
            self._slots.enter_flush(self._plan_text(), _rows(plan.rows), _gradients(plan.gradients))

    def _plan_text(self) -> str:
        return f"plan of iteration {self._next_iteration} does not fit the cache"

    def _check_order(self, epoch: int, iteration: int) -> None:
        if epoch != self._epoch:
            raise FailedPrecondition(f"plan of epoch {epoch} refused: this worker is in epoch {self._epoch}")
        if iteration != self._next_iteration:
            raise FailedPrecondition(f"plan of iteration {iteration} refused: expected {self._next_iteration}")


def _check_samples(plan: IterationPlan) -> None:
    rows = len(plan.unique_ids) + len(plan.initial_ids)
    if plan.inverse.size and int(plan.inverse.max()) >= rows:
        raise FailedPrecondition(f"inverse names row {int(plan.inverse.max())}, the plan has {rows} rows")
    if plan.batch_size < len(plan.labels):
        raise FailedPrecondition(f"{len(plan.labels)} samples given, the global batch has {plan.batch_size}")


def _rows(rows: Transfers) -> Rows:
    return rows.ids, rows.slots, rows.versions


def _gradients(gradients: GradientTransfers) -> Gradients:
    return (*_rows(gradients.rows), gradients.contributors)


@contextmanager
def _misfits_refused() -> Iterator[None]:
    try:
        yield
    except Misfit as error:
        raise FailedPrecondition(str(error)) from None
