"""The inputs of an advice: the profile of the data, the footprint of the model, and simulations of sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context

import numpy as np
from numpy.typing import NDArray

from esd.advice.steps import StepListener, ignore
from esd.data import Dataset
from esd.data.dataset import negatives_of, table_options_of
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.simulate import simulate
from esd.dispatcher.simulator.sizing.access import AccessTable
from esd.dispatcher.simulator.sizing.coherence import expected_traffic
from esd.dispatcher.simulator.sizing.search import SizeSearch, Trial
from esd.run.model import look_here
from esd.run.options import BALANCED, RunOptions
from esd.run.stream import READ_SAMPLES, first_samples, global_batches
from esd.services.domain.batches import SampleBatch
from esd.services.domain.dense_sums import AllReduce, parse_dense_sum
from esd.services.domain.footprint import Footprint
from esd.services.domain.ids import distinct_values, in_table
from esd.services.domain.jobs import JobSpec, RowLimitPolicy
from esd.services.domain.negatives import Negatives
from esd.services.domain.plans import IterationPlan
from esd.services.domain.tables import OptimizerSpec
from esd.services.runtime.extras import require_torch

_MEASURED = (64, 2048)  # samples of the iterations whose memory and time are measured
_MEASURED_ITERATIONS = 4


@dataclass(frozen=True, slots=True)
class Profile:
    """The first samples of the data.

    Attributes:
        dataset: where they come from.
        samples: the samples.
        table: how often they have each row.
        drawn_only: rows that no sample has, and of which negatives may be drawn.
    """

    dataset: Dataset
    samples: Sequence[SampleBatch]
    table: AccessTable
    drawn_only: int

    @property
    def sample_bytes(self) -> float:
        """Bytes of a sample in a message, in the mean."""
        return sum(batch.nbytes for batch in self.samples) / self.table.samples

    @classmethod
    def of(cls, chosen: RunOptions, count: int) -> Profile:
        """Reads up to `count` samples."""
        dataset = chosen.open(READ_SAMPLES)
        samples = list(first_samples(dataset, count))
        table = AccessTable.of(samples, 1 + max(feature.table for feature in dataset.features))
        return cls(dataset, samples, table, _drawn_only(negatives_of(dataset), samples))

    def job(self, chosen: RunOptions) -> JobSpec:
        """Returns the job of a run on this data."""
        return chosen.job(
            features=self.dataset.features,
            labels=self.dataset.labels,
            negatives=negatives_of(self.dataset),
            table_options=table_options_of(self.dataset),
            dense_features=self.dataset.dense_features,
            parameter_servers=("planned",),
        )

    def room(self, job: JobSpec) -> int:
        """Returns the room of all rows that may be trained, in rows of the first table, rounded up."""
        room = self.table.room(job.tables)
        if job.negatives is not None:
            drawn = job.tables[job.negatives.table]
            room += math.ceil(self.drawn_only * drawn.row_transfer_bytes / job.table.row_transfer_bytes)
        return room

    def traffic(self, job: JobSpec, batch: int, cache_rows: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Returns the bytes that each row is expected to move at a worker in an iteration, float64 [E].

        And how likely the worker trains it, float64 [E]. Both are for the samples alone, without negatives.
        """
        sizes = self.table.sizes(job.tables)
        traffic = expected_traffic(self.table.popularity, batch, job.workers, cache_rows, sizes)
        moved = traffic.bytes_by_row(
            self.by_row([float(table.row_transfer_bytes) for table in job.tables]),
            self.by_row([float(table.gradient_transfer_bytes) for table in job.tables]),
        )
        return moved, traffic.trained

    def by_row(self, of_tables: Sequence[float]) -> NDArray[np.float64]:
        """Returns for each row the value of its table, float64 [E]."""
        return np.array(of_tables, np.float64)[self.table.tables]

    def batches(self, size: int) -> Iterator[SampleBatch]:
        """Cuts the samples into whole batches."""
        return (batch for batch in global_batches(self.samples, size) if len(batch) == size)


def _drawn_only(negatives: Negatives | None, samples: Sequence[SampleBatch]) -> int:
    if negatives is None:
        return 0
    first = int(in_table(np.zeros(1, np.uint64), negatives.table)[0])
    distinct = distinct_values(np.concatenate([batch.ids.reshape(-1) for batch in samples]))
    of_samples = np.searchsorted(distinct, np.array([first, first + negatives.ids], np.uint64))
    return negatives.ids - int(of_samples[1] - of_samples[0])


def size_search(
    chosen: RunOptions, profile: Profile, footprint: Footprint, memory: float, listener: StepListener = ignore
) -> SizeSearch:
    """Returns the search for the batch and the cache that train fastest in `memory` bytes per worker."""
    rows = profile.room(profile.job(chosen))

    def show(batch: int, cache_rows: int) -> Trial:
        listener(f"simulation of {batch} samples, {cache_rows:,} cached rows")
        return simulated(chosen, profile, footprint, batch, cache_rows)

    return SizeSearch(
        lambda batch: min(rows, footprint.cache_rows(memory, batch)),
        lambda batch, cache_rows: predicted(chosen, profile, footprint, batch, cache_rows),
        show,
    )


def simulated(chosen: RunOptions, profile: Profile, footprint: Footprint, batch: int, cache_rows: int) -> Trial:
    """Simulates the profiled samples; the first third of the iterations fills the caches.

    Raises:
        ResourceExhausted: the rows of an iteration do not fit the cache.
    """
    most = chosen.max_rows if chosen.at_max_rows is RowLimitPolicy.FORGET else 0  # too many rows: the counts report it
    if chosen.workloads in (None, "equal", BALANCED):  # a list has its own sum
        chosen = replace(chosen, batch=batch)
    job = profile.job(replace(chosen, measured_links=False, max_rows=most))
    planner = Planner(job, chosen.bandwidths(), [cache_rows] * chosen.workers, rests=True)
    totals = simulate(
        planner,
        profile.batches(job.batch_size),
        sample_seconds=[footprint.sample_seconds] * chosen.workers,
        warm_up=profile.table.samples // job.batch_size // 3,
    )
    beside = totals.iterations * _step_seconds(chosen, footprint)
    beside += float(totals.reduced_bytes.max()) / _bandwidth_of_sums(chosen)  # after the dense gradients
    return Trial(
        batch=batch,
        cache_rows=cache_rows,
        seconds=(totals.makespan_seconds + beside) / totals.samples,
        least_seconds=(totals.overlapped_seconds + beside) / totals.samples,
        cost_seconds=totals.cost_seconds / totals.samples,
        bytes=float((totals.moved_bytes.total - totals.unsent_bytes).sum()) / totals.samples,
        hit_ratio=totals.hit_ratio,
    )


def predicted(chosen: RunOptions, profile: Profile, footprint: Footprint, batch: int, cache_rows: int) -> float:
    """Returns the seconds of a sample under random dispatch, by the equations."""
    moved = float(profile.traffic(profile.job(chosen), batch, cache_rows)[0].sum())
    seconds = moved / min(chosen.bandwidths()) + batch * footprint.sample_seconds + _step_seconds(chosen, footprint)
    return seconds / (batch * chosen.workers)


def measure(chosen: RunOptions, profile: Profile, device: str, threads: int) -> Footprint:
    """Measures memory and computation of the model on this machine, in a process of its own.

    Raises:
        FailedPrecondition: torch is not installed.
    """
    require_torch("measuring the model for a plan")
    alone = replace(chosen.under("random"), workers=1, links="1g", workloads=None, max_rows=0)
    small, large = (_plans(replace(alone, batch=size), profile) for size in _MEASURED)
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(_measure, _of_all_rows(profile.job(alone)), small, large, device, threads).result()


def _measure(
    job: JobSpec, small: list[IterationPlan], large: list[IterationPlan], device: str, threads: int
) -> Footprint:
    look_here()
    from esd.worker.training.footprint import measure_footprint  # noqa: PLC0415 - imports torch, in this process only

    return measure_footprint(job, small, large, device, threads)


def _of_all_rows(job: JobSpec) -> JobSpec:
    """Returns the job with all ids trained, and no row forgotten: a worker's memory of a row does not depend on it."""
    return replace(job, admit_afters=(), row_ttls=())


def _plans(alone: RunOptions, profile: Profile) -> list[IterationPlan]:
    """Returns the plans of one worker's first iterations. Where the data is short, it begins again."""
    job = _of_all_rows(profile.job(alone))
    planner = Planner(job, alone.bandwidths(), [profile.room(job)])

    def endless() -> Iterator[SampleBatch]:
        while True:
            yield from profile.samples

    batches = global_batches(endless(), job.batch_size)
    return [planner.plan(next(batches)).plans[0] for _ in range(_MEASURED_ITERATIONS)]


def dense_seconds(chosen: RunOptions, footprint: Footprint) -> float:
    """Returns the seconds of an iteration's dense sum: of its bytes over the slowest link, or the workers' own network.

    With the round trips of the iteration, which its rows and the sum share.
    """
    way = parse_dense_sum(chosen.dense_sum)
    floats = way.dense_floats(footprint.dense_shapes, OptimizerSpec(chosen.optimizer).values_per_parameter)
    exchanged = way.sent_bytes(floats, chosen.workers)
    waits = way.iteration_round_trips(chosen.workers) * footprint.round_trip_seconds
    return exchanged / _bandwidth_of_sums(chosen) + waits


def _bandwidth_of_sums(chosen: RunOptions) -> float:
    """Returns the bytes per second of the links of the sums: of a second network, if there is one, for a ring."""
    second = chosen.lan_bandwidth() if isinstance(parse_dense_sum(chosen.dense_sum), AllReduce) else None
    return min(chosen.bandwidths()) if second is None else second


def _step_seconds(chosen: RunOptions, footprint: Footprint) -> float:
    """Returns the seconds of an iteration without its samples: computation, messages, sum of the dense gradients."""
    return footprint.step_seconds + footprint.message_seconds + dense_seconds(chosen, footprint)
