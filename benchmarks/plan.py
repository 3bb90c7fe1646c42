"""`esd plan` compared with a sweep over batches and caches: how far its recommendation is from the simulated best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from esd.advice.sizing import Profile, measure, size_search
from esd.dispatcher.simulator.sizing.coherence import expected_traffic
from esd.dispatcher.simulator.sizing.search import Trial
from esd.run.options import RunOptions

# None of these was looked at when the equations and the search were made.
STREAMS = (
    "journey",
    "synthetic:avazu",
    "synthetic:zipf?skew=0.8&keys=200000&fields=10",
    "synthetic:zipf?skew=1.05&keys=1000000",
    "synthetic:zipf?skew=1.3&keys=500000&fields=40",
)
LINKS = "500m,500m,50m,50m"
_BATCHES = (16, 32, 64, 128, 256, 512)
_CACHES = 8  # sizes of the sweep for each batch, each 1.8 times the next smaller one, up to the largest that fits
_SHARE = 0.4  # of the memory that all rows and the largest batch would need: so that the two compete


@dataclass(frozen=True, slots=True)
class Comparison:
    """One stream.

    Attributes:
        stream: its name.
        distinct_rows: of the profile.
        rows_that_fit: rows that fit in addition to the recommended batch.
        batch: recommended samples per worker.
        cache_rows: recommended rows of a cache.
        static_hit_ratio: hit ratio by eq. 6 alone, where cached rows never become stale.
        hit_ratio: simulated hit ratio.
        against_best_seconds: simulated time of a sample, over the best of the whole sweep.
        best_batch: samples per worker with the best time of the sweep.
        best_cache_rows: rows of a cache with the best time of the sweep.
        against_best_cost: simulated transfers of a sample, over the best of the sweep with the same batch.
        simulations: number of simulations for the recommendation.
    """

    stream: str
    distinct_rows: int
    rows_that_fit: int
    batch: int
    cache_rows: int
    static_hit_ratio: float
    hit_ratio: float
    against_best_seconds: float
    best_batch: int
    best_cache_rows: int
    against_best_cost: float
    simulations: int


def compare(stream: str, samples: int) -> Comparison:
    """Recommends sizes for a stream, and sweeps over all of them."""
    chosen = RunOptions(data=stream, links=LINKS, dense_sum="all-reduce")
    profile = Profile.of(chosen, samples)
    footprint = measure(chosen, profile, "cpu", 1)
    rows = len(profile.table.counts)
    competing = rows * footprint.row_bytes + _BATCHES[-1] * footprint.sample_bytes
    memory = footprint.fixed_bytes + _SHARE * competing
    search = size_search(chosen, profile, footprint, memory)
    best = search.run(_BATCHES)
    simulations = len(search.trials)
    swept: list[Trial] = []
    for batch in _BATCHES:
        fit = min(rows, footprint.cache_rows(memory, batch))
        for cache_rows in np.geomspace(fit / 64, fit, _CACHES) if fit > 0 else ():
            trial = search.trial(batch, round(cache_rows))
            if trial is not None:
                swept.append(trial)
    fastest = min(swept, key=lambda trial: trial.seconds)
    cheapest = min(trial.cost_seconds for trial in swept if trial.batch == best.batch)
    trained = expected_traffic(profile.table.popularity, best.batch, chosen.workers, rows).trained
    return Comparison(
        stream=stream,
        distinct_rows=rows,
        rows_that_fit=min(rows, footprint.cache_rows(memory, best.batch)),
        batch=best.batch,
        cache_rows=best.cache_rows,
        static_hit_ratio=float(trained[: best.cache_rows].sum() / trained.sum()),
        hit_ratio=best.hit_ratio,
        against_best_seconds=best.seconds / fastest.seconds,
        best_batch=fastest.batch,
        best_cache_rows=fastest.cache_rows,
        against_best_cost=best.cost_seconds / cheapest,
        simulations=simulations,
    )
