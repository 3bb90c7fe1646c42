"""Partial gradients of split rows: when all contributors have sent theirs, one optimizer step uses their sum."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from esd.native import rows as native
from esd.ps_server.core.store import TableStore
from esd.services.domain.errors import FailedPrecondition
from esd.services.domain.rows import GradientBlock, RowBlock
from esd.services.domain.tables import OptimizerKind, OptimizerSpec, TableSpec
from esd.services.domain.versions import at_birth
from esd.services.domain.worker_set import set_at


class Arrival(IntEnum):
    """The effect of a contribution on the pending sum of its row; values are the codes of esd.native.rows."""

    WAITS = 0
    COMPLETES = 1
    REPEATED = 2
    CONFLICT = 3


class SkippedVersion(FailedPrecondition):
    """A gradient makes a version whose predecessor does not exist yet.

    Attributes:
        ids: uint64 [r], the rows whose gradients came too early.
        versions: int64 [r], the versions that these rows must reach first.
    """

    def __init__(self, message: str, ids: NDArray[np.uint64], versions: NDArray[np.int64]) -> None:
        super().__init__(message)
        self.ids = ids
        self.versions = versions


def discard_made(store: TableStore, ids: NDArray[np.uint64]) -> None:
    """Discards pending gradients whose version the row has already reached.

    They are left over when a store fails after it has written a row and before it has discarded the row's gradients.
    """
    targets = store.partials.splits(ids).targets
    pending = targets > 0
    if pending.any():
        made = targets[pending] <= store.rows.versions(ids[pending])
        if made.any():
            store.partials.discard(ids[pending][made])


def discard_of_earlier_lives(store: TableStore, ids: NDArray[np.uint64], births: NDArray[np.int64]) -> None:
    """Discards pending gradients of earlier lives: their version is below the row's entry in `births`, int64 [r]."""
    targets = store.partials.splits(ids).targets
    over = (targets > 0) & (targets < births)
    if over.any():
        store.partials.discard(ids[over])


def classify(store: TableStore, block: GradientBlock) -> NDArray[np.uint8]:
    """Returns an Arrival per gradient, uint8 [r]; changes nothing.

    A gradient for a version that the row has reached counts as repeated, because its sum was applied before.

    Raises:
        SkippedVersion: a gradient is more than one version ahead of its row.
        FailedPrecondition: a gradient disagrees with the pending ones on version, contributors or step.
    """
    versions = store.rows.versions(block.ids)
    skips = block.targets > np.maximum(versions, at_birth(block.targets)) + 1
    if skips.any():
        at = int(np.argmax(skips))
        raise SkippedVersion(
            f"gradient makes version {block.targets[at]} of row {block.ids[at]}, which is only at {versions[at]}",
            block.ids[skips],
            block.targets[skips] - 1,
        )
    arrivals = store.partials.inspect(block)
    arrivals[block.targets <= versions] = Arrival.REPEATED
    if (arrivals == Arrival.CONFLICT).any():
        at = int(np.argmax(arrivals == Arrival.CONFLICT))
        raise FailedPrecondition(_disagreement(store, block, at))
    return arrivals


def complete(store: TableStore, spec: TableSpec, last: GradientBlock, rows: NDArray[np.float32]) -> None:
    """Trains the rows for which `last` is the last contribution, stores them, and discards their partial gradients.

    Args:
        store: the table's store.
        spec: the table.
        last: contributions that `classify` found to be COMPLETES.
        rows: float32 [r, W], the rows before this step, with initial values if never trained; changed in place.
    """
    apply_optimizer(spec.optimizer, rows, store.partials.sum(last), last.steps, last.rates)
    # Rows first: after a crash in between, discard_made() finds the gradients of a version that exists already.
    store.rows.write_newer(RowBlock(last.ids, last.targets, rows))
    store.partials.discard(last.ids)


def apply_optimizer(
    optimizer: OptimizerSpec,
    rows: NDArray[np.float32],
    gradients: NDArray[np.float32],
    steps: NDArray[np.uint32],
    rates: NDArray[np.float32],
) -> None:
    """Takes one optimizer step on rows [r, W], in place, with gradients [r, D], steps [r] and rates [r].

    The norms of the rows are limited afterwards, if the optimizer has a limit.
    """
    if optimizer.kind is OptimizerKind.SGD:
        native.sgd(rows, gradients, rates)
    elif optimizer.kind is OptimizerKind.ROWWISE_ADAGRAD:
        native.rowwise_adagrad(rows, gradients, rates, optimizer.epsilon)
    else:
        native.adam(rows, gradients, steps, rates, optimizer.epsilon, optimizer.beta1, optimizer.beta2)
    if optimizer.max_norm:
        native.limit_norms(rows, gradients.shape[1], optimizer.max_norm)


def _disagreement(store: TableStore, block: GradientBlock, at: int) -> str:
    splits = store.partials.splits(block.ids[at : at + 1])
    return (
        f"gradient of worker {block.worker} for row {block.ids[at]} (version {block.targets[at]}, contributors "
        f"{set_at(block.contributors, at)}, step {block.steps[at]}) disagrees with the pending ones "
        f"(version {splits.targets[0]}, contributors {set_at(splits.contributors, 0)}, step {splits.steps[0]})"
    )
