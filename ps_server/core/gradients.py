"""Split rows: partial gradients become one optimizer step when all contributors are in."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from ps_server.core import optimizers
from ps_server.core.store import TableStore
from services.domain.errors import FailedPrecondition
from services.domain.rows import GradientBlock, RowBlock
from services.domain.tables import TableSpec
from services.domain.versions import at_birth


class Arrival(IntEnum):
    """What a contribution means for what is pending; the codes of esd_native.rows."""

    WAITS = 0
    COMPLETES = 1
    REPEATED = 2
    CONFLICT = 3


def forget_made(store: TableStore, ids: NDArray[np.uint64]) -> None:
    """Forgets what is pending for versions that the rows have reached.

    Such gradients are left when a store fails between writing a row and forgetting its gradients.
    """
    targets = store.partials.splits(ids).targets
    pending = targets > 0
    if pending.any():
        made = targets[pending] <= store.versions(ids[pending])
        if made.any():
            store.partials.discard(ids[pending][made])


def forget_older_lives(store: TableStore, ids: NDArray[np.uint64], births: NDArray[np.int64]) -> None:
    """Forgets what is pending for lives of the rows that ended before those that began at `births`, int64 [r]."""
    targets = store.partials.splits(ids).targets
    over = (targets > 0) & (targets < births)
    if over.any():
        store.partials.discard(ids[over])


def classify(store: TableStore, block: GradientBlock) -> NDArray[np.uint8]:
    """An Arrival per gradient, changing nothing.

    A gradient for a version that the row has reached is repeated: the sum was made before.

    Raises:
        FailedPrecondition: a gradient skips a version, or disagrees with the pending ones.
    """
    versions = store.versions(block.ids)
    skips = block.targets > np.maximum(versions, at_birth(block.targets)) + 1
    if skips.any():
        at = int(np.argmax(skips))
        raise FailedPrecondition(
            f"gradient makes version {block.targets[at]} of row {block.ids[at]}, which is only at {versions[at]}"
        )
    arrivals = store.partials.inspect(block)
    arrivals[block.targets <= versions] = Arrival.REPEATED
    if (arrivals == Arrival.CONFLICT).any():
        at = int(np.argmax(arrivals == Arrival.CONFLICT))
        raise FailedPrecondition(_disagreement(store, block, at))
    return arrivals


def complete(store: TableStore, spec: TableSpec, last: GradientBlock, born: RowBlock) -> None:
    """Stores the rows that the last contributions complete, and forgets their partial gradients.

    Args:
        store: the table's store.
        spec: the table.
        last: contributions that were classified COMPLETES.
        born: their rows as stored, initial values where never trained; changed in place.
    """
    optimizers.apply(spec.optimizer, born.rows, store.partials.sum(last), last.steps)
    # Rows first: a crash in between leaves partial gradients of a version already made, which forget_made() finds.
    store.write_newer(RowBlock(last.ids, last.targets, born.rows))
    store.partials.discard(last.ids)


def _disagreement(store: TableStore, block: GradientBlock, at: int) -> str:
    target, contributors, step = (int(column[0]) for column in store.partials.splits(block.ids[at : at + 1]))
    return (
        f"gradient of worker {block.worker} for row {block.ids[at]} (version {block.targets[at]}, contributors "
        f"{int(block.contributors[at]):#x}, step {block.steps[at]}) disagrees with the pending ones "
        f"(version {target}, contributors {contributors:#x}, step {step})"
    )
