"""From the engine's columns to plan messages; the samples' own data joins them here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from services.domain.batches import SampleBatch
from services.domain.plans import FlushPlan, GradientTransfers, IterationPlan, Reload, Transfers

if TYPE_CHECKING:  # the shapes of the engine's dicts exist in its stub only
    from esd_native.engine import CacheColumns, FlushColumns, GradientColumns, PlanColumns, TransferColumns


def iteration_plan(columns: PlanColumns, batch: SampleBatch, epoch: int) -> IterationPlan:
    """One worker's plan from its columns of `Engine.commit` and its samples of the global batch."""
    positions = columns["positions"]
    return IterationPlan(
        epoch=epoch,
        iteration=columns["iteration"],
        batch_size=len(batch),
        update_rows=_rows(columns["update_rows"]),
        update_gradients=_gradients(columns["update_gradients"]),
        evict_rows=_rows(columns["evict_rows"]),
        evict_gradients=_gradients(columns["evict_gradients"]),
        drops=_rows(columns["drops"]),
        pulls=_rows(columns["pulls"]),
        positions=positions,
        unique_ids=columns["unique_ids"],
        unique_slots=columns["unique_slots"],
        unique_versions=columns["unique_versions"],
        unique_contributors=columns["unique_contributors"],
        inverse=columns["inverse"],
        dense=batch.dense[positions],
        labels=batch.labels[positions],
        forgotten=columns["forgotten"],
        forgotten_below=columns["forgotten_below"],
        discards=_rows(columns["discards"]),
    )


def flush_plan(columns: FlushColumns, epoch: int, *, checkpoint: bool = False) -> FlushPlan:
    """One worker's flush from its columns of `Engine.flush`."""
    return FlushPlan(
        epoch=epoch,
        iteration=columns["iteration"],
        rows=_rows(columns["rows"]),
        gradients=_gradients(columns["gradients"]),
        checkpoint=checkpoint,
    )


def reload_plan(columns: CacheColumns, checkpoint: int) -> Reload:
    """What one worker's cache holds after a checkpoint, from its columns of `Engine.contents`."""

    def part(chosen: NDArray[np.bool_]) -> Transfers:
        ids = columns["ids"][chosen]
        return Transfers(ids, columns["slots"][chosen], columns["versions"][chosen], early=len(ids))

    return Reload(checkpoint, rows=part(columns["latest"]), outdated=part(~columns["latest"]))


def _rows(columns: TransferColumns) -> Transfers:
    return Transfers(columns["ids"], columns["slots"], columns["versions"], columns["early"])


def _gradients(columns: GradientColumns) -> GradientTransfers:
    return GradientTransfers(_rows(columns), columns["contributors"], columns["steps"])
