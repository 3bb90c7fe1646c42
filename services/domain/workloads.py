"""Workloads of batches that are shorter than a global batch, or of fewer workers."""

from __future__ import annotations

from esd.services.domain.sites import in_proportion


def scale_workloads(workloads: tuple[int, ...], samples: int) -> tuple[int, ...]:
    """Shares `samples` out in proportion to `workloads`, by largest remainder, ties to the lowest slot.

    It serves the last, short batch of a finite stream. No worker gets more than its workload when
    `samples <= sum(workloads)`.
    """
    total = sum(workloads)
    if samples == total:
        return workloads
    return tuple(in_proportion(workloads, samples))
