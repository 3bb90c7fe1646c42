"""Whether rows are better replicated than pulled and pushed, and how many: simulated for an advice."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from esd.advice.sizing import Profile, simulated
from esd.advice.steps import StepListener, ignore
from esd.dispatcher.simulator.sizing.search import Trial
from esd.run.options import RunOptions
from esd.services.domain.errors import ResourceExhausted
from esd.services.domain.footprint import Footprint
from esd.services.domain.sync import OnDemand, Replicated

_STEP = 4  # between numbers of replicated rows that are told apart


def ways_to_synchronise(
    chosen: RunOptions, profile: Profile, footprint: Footprint, asked: Trial, listener: StepListener = ignore
) -> dict[str, Trial]:
    """Simulates ways that train the same model beside the one that is asked for.

    `none`, `full`, `write-through` and `proactive` move no less than `on-demand`: they are simulated only when asked
    for. A simulation has no rows that are pushed ahead, which on real links made `proactive` wait longer than
    `on-demand` in every setting measured (docs/benchmarks/synchronisation.md).

    The first R of `replicated:R` is from the equations for random dispatch; then fewer and more rows are simulated
    while that is faster.

    Args:
        chosen: the options of the run, with the batch, the cached rows and the policy that are recommended.
        profile: of its samples.
        footprint: of its model.
        asked: the simulation with these.
        listener: gets a line before each simulation.

    Returns:
        Simulations by `--sync`, the requested one first; it is the only one if the others train another model.
    """
    trials = {chosen.sync: asked}
    if not profile.job(chosen).sync.exact or chosen.workers == 1:
        return trials

    def trial(sync: str) -> Trial | None:
        if sync not in trials:
            listener(f"simulation of --sync {sync}")
            try:
                trials[sync] = simulated(replace(chosen, sync=sync), profile, footprint, asked.batch, asked.cache_rows)
            except ResourceExhausted:  # the other rows of an iteration do not fit beside them
                return None
        return trials[sync]

    trial(OnDemand.name)
    first = min(hot_rows(chosen, profile), asked.cache_rows // 2)
    for factor in (1 / _STEP, _STEP):
        fastest = math.inf
        for rows in _ladder(first, factor, asked.cache_rows):
            tried = trial(str(Replicated(rows)))
            if tried is None or tried.seconds >= fastest:
                break
            fastest = tried.seconds
    return trials


def hot_rows(chosen: RunOptions, profile: Profile) -> int:
    """Returns how many rows would move less if their gradients were all-reduced, by the equations: random dispatch.

    An all-reduce of n workers moves 2 (n-1)/n of a gradient over each link, in every iteration that trains the row.
    Where tables differ, rows are counted by their room, in rows of the first table.
    """
    job = profile.job(chosen)
    moved, trained = profile.traffic(job, job.batch_size // job.workers, chosen.cache_rows or 0)
    dimensions = profile.by_row([table.dimension for table in job.tables])
    reduced = 8 * dimensions * (job.workers - 1) / job.workers * (1 - (1 - trained) ** job.workers)
    return math.ceil(float(profile.table.sizes(job.tables)[moved > reduced].sum()))


def _ladder(first: int, factor: float, cache_rows: int) -> Iterator[int]:
    """Yields numbers of rows from `first` on, as long as there are any, and room beside them."""
    rows = first
    while 1 <= rows < cache_rows:
        yield rows
        rows = int(rows * factor)
