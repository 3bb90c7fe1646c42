"""Measures the cost of sites: rows moved and makespan with samples that stay at their sites, and without.

    python -m benchmarks.sites

Samples of two sites are made. Each has an id from a pool of all and two that are, at a share of 1 - overlap, from pools
of its site alone. Costs are modelled times over equal links, so that they are bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.simulate import simulate
from esd.run.options import RunOptions
from esd.services.domain.batches import SampleBatch
from esd.services.domain.features import numbered_ids
from esd.services.domain.sites import site_key

SITES = ("north", "north", "south", "south")
BATCH, ITERATIONS, POOL, CACHE = 256, 400, 20_000, 3_000


def batches(overlap: float) -> Iterator[SampleBatch]:
    """Yields the global batches, of which 70% of the samples are of the first site."""
    rng = np.random.default_rng(0)
    for _ in range(ITERATIONS):
        south = rng.random(BATCH) < 0.3
        ids = rng.zipf(1.2, (BATCH, 3)).astype(np.uint64) % np.uint64(POOL)
        own = rng.random((BATCH, 3)) >= overlap
        own[:, 2] = False
        ids += np.where(own & south[:, None], POOL, 0).astype(np.uint64)
        ids += (np.arange(3) * 2 * POOL).astype(np.uint64)
        batch = SampleBatch.of_fields(ids, np.empty((BATCH, 0), np.float32), np.zeros(BATCH, np.float32))
        keys = np.where(south, np.uint64(site_key("south")), np.uint64(site_key("north")))
        yield replace(batch, sites=keys.astype(np.uint64))


def main() -> None:
    """Prints a line for each overlap, mechanism and choice."""
    print("overlap  mechanism  sites     bytes of random without sites  makespan of the same")
    for overlap in (0.0, 0.5, 1.0):
        base = None
        for mechanism in ("random", "laia", "esd", "joint"):
            for sited in (False, True):
                options = RunOptions(
                    mechanism=mechanism, workers=4, links="100m", batch=BATCH // 4, cache_rows=CACHE,
                    sites=",".join(SITES) if sited else None,
                )  # fmt: skip
                job = options.job(features=numbered_ids(3), dense_features=(), parameter_servers=("simulated",))
                planner = Planner(job, options.bandwidths(), [CACHE] * 4)
                stream = (each if sited else replace(each, sites=None) for each in batches(overlap))
                totals = simulate(planner, stream, warm_up=ITERATIONS // 4)
                found = np.array([totals.cost_seconds, totals.makespan_seconds])
                base = found if base is None else base
                share = [f"{100 * each:.0f}%" for each in found / base]
                print(f"{overlap:<7}  {mechanism:<9}  {'stay' if sited else 'any':<5}  {share[0]:>8}  {share[1]:>8}")


if __name__ == "__main__":
    main()
