"""Simulates a run: its decisions and operations, without network and tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from esd.dispatcher.core.decision_log import EpochBegan, JobOpened, StreamEnded, read_decisions
from esd.dispatcher.core.mechanisms import Replay
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.alternatives import Cluster, get_alternative, simulate_alternative
from esd.dispatcher.simulator.decision_replay import replay_decisions
from esd.dispatcher.simulator.dimensions import in_tables, with_dimensions
from esd.dispatcher.simulator.link_bytes import LinkBytes
from esd.dispatcher.simulator.simulate import simulate
from esd.run.budget import AUTO
from esd.run.dense_shapes import dense_shapes
from esd.run.dimensions import parse_dimensions
from esd.run.hot_batches import in_hot_batches
from esd.run.options import RunOptions
from esd.run.results import Result, alternative_result, simulation_result
from esd.run.stream import READ_SAMPLES, global_batches, simulated_stream
from esd.services.domain.auto_sum import with_chosen_sum
from esd.services.domain.batches import SampleBatch
from esd.services.domain.dense_sums import AllReduce, parse_dense_sum
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.jobs import JobSpec, equal_workloads
from esd.services.domain.sync import OnDemand
from esd.services.wire.jobs import job_of_json
from esd.services.wire.plans import digest_of


def simulate_run(
    chosen: RunOptions,
    trace: NDArray[np.uint64] | None = None,
    assignments: NDArray[np.int32] | None = None,
    sample_seconds: Sequence[float] | None = None,
    alternative: str | None = None,
    dims: str | None = None,
    shards: int = 1,
) -> Result:
    """Simulates one run.

    All bytes on the links are counted where the job has a model whose dense gradients are known: samples of a data set,
    rows of one size, and torch to build it. Otherwise only rows are counted.

    Args:
        chosen: the options. Links have the speeds that they name, and a decision takes the time that it needs.
        trace: the stream, uint64 [N, F], instead of the data set that the options name.
        assignments: the worker of every sample, int32 [iterations, k], instead of a mechanism.
        sample_seconds: [n], computing time of each worker per sample; none by default.
        alternative: the protocol that is charged in place of the job's own.
        dims: values per row by field, as `--dims`.
        shards: number of parameter servers.
    """
    chosen = replace(chosen, measured_links=False, budget=None if chosen.budget == AUTO else chosen.budget)
    if assignments is not None:
        chosen = _fit(chosen, assignments)
    for option, value in (("--trace", trace), ("--dims", dims)):
        if chosen.hot_batches and value is not None:
            raise InvalidArgument(f"--hot-batches goes by the tables of --data: leave out {option}")
    stream = simulated_stream(chosen, trace)
    chosen = replace(chosen, lr_schedule="constant", dense_lr_schedule=None)  # nothing is trained, whatever the rate
    job = chosen.job(
        features=stream.features,
        dense_features=stream.dense_features,
        parameter_servers=tuple(f"simulated {shard}" for shard in range(shards)),
        labels=stream.labels,
        negatives=stream.negatives,
        table_options=stream.table_options,
    )
    job = with_chosen_sum(job, chosen.bandwidths(), [chosen.lan_bandwidth()] * chosen.workers)
    if job.negatives is not None and (dims is not None or alternative is not None):
        raise InvalidArgument(
            "negatives are simulated with the job's own tables and protocol: leave out --dims and --alternative"
        )
    caches = [stream.cache_rows] * chosen.workers
    mechanism = None if assignments is None else Replay(assignments, chosen.workers)
    batches: Iterable[SampleBatch] = stream.batches()
    if dims is not None:
        job, numbers = with_dimensions(job, parse_dimensions(dims, [each.name for each in stream.features], chosen.dim))
        batches = in_tables(batches, numbers) if len(job.tables) > 1 else batches
    planner = Planner(job, chosen.bandwidths(), caches, mechanism=mechanism, rests=True)
    if alternative is None:
        link = _link_of(job, chosen) if trace is None and dims is None else None
        return simulation_result(job, simulate(planner, batches, sample_seconds=sample_seconds, link=link), link)
    _check_alternative(alternative, chosen, job, dims)
    cluster = Cluster(
        capacities=caches,
        transfer_seconds=planner.cost_model.transfer_seconds,
        sample_seconds=sample_seconds or [0.0] * chosen.workers,
        profile=stream.profile() if alternative == "fae" else np.empty(0, np.uint64),
    )
    protocol = get_alternative(alternative, cluster)
    return alternative_result(simulate_alternative(planner, stream.batches(), protocol, sample_seconds=sample_seconds))


def _link_of(job: JobSpec, chosen: RunOptions) -> LinkBytes | None:
    """Returns the count of all bytes on the links; None where torch is not installed, which builds the model."""
    if isinstance(job.dense_sum, AllReduce) and chosen.lan_bandwidth() is not None:
        return LinkBytes(job, ())  # the ring takes another network
    shapes = dense_shapes(job)
    return None if shapes is None else LinkBytes(job, shapes)


def _check_alternative(alternative: str, chosen: RunOptions, job: JobSpec, dims: str | None) -> None:
    """Raises InvalidArgument for an option that an alternative protocol does not follow."""
    if not isinstance(job.sync, OnDemand):
        raise InvalidArgument(f"--alternative {alternative} takes the place of --sync {chosen.sync}: leave one out")
    if job.sync.delivers:
        raise InvalidArgument(f"--alternative {alternative} sends no rows from worker to worker: leave out --direct")
    if dims is not None:
        raise InvalidArgument("--dims does not go with --alternative, which counts rows of one size")
    if job.forgets_rows:
        raise InvalidArgument("--at-max-rows forget does not go with --alternative, which forgets no rows")
    if any(job.row_ttls):
        raise InvalidArgument("--row-ttl does not go with --alternative, which forgets no rows")
    if job.admit_afters:
        raise InvalidArgument("--admit-after does not go with --alternative, which trains every id at once")
    if job.workload_limits is not None:
        raise InvalidArgument("--workloads balanced does not go with --alternative: give a list")


def replay_run(chosen: RunOptions, log: Path) -> Result:
    """Replays a decision log on the data that the options name.

    Raises:
        FailedPrecondition: a plan differs from the recorded one.
        InvalidArgument: the file is no decision log, or the data ends before it does.
    """
    opened = next(read_decisions(log), None)
    if not isinstance(opened, JobOpened):
        raise InvalidArgument(f"decision log {log} is empty")
    begun = (each.dense_sum for each in read_decisions(log) if isinstance(each, EpochBegan))
    job = job_of_json(opened.job)
    if chosen_sum := next(begun, ""):  # the job may have left it to the dispatcher
        job = replace(job, dense_sum=parse_dense_sum(chosen_sum))
    ends = (each.iteration for each in read_decisions(log) if isinstance(each, StreamEnded))
    end = next(ends, None)  # the data may go on, and a decision with a lookahead would see that

    samples = replace(chosen, hot_batches=0).open(READ_SAMPLES)
    if chosen.hot_batches:
        samples = in_hot_batches(samples, job, chosen.hot_batches)

    def batches() -> Iterator[SampleBatch]:
        return islice(global_batches(samples, job.batch_size), end)

    return simulation_result(job, replay_decisions(lambda: read_decisions(log), job, batches, digest_of))


def _fit(chosen: RunOptions, assignments: NDArray[np.int32]) -> RunOptions:
    """Takes missing options from the table: iterations from its rows, the global batch from its columns."""
    rows, samples = assignments.shape
    if chosen.iterations is not None and chosen.iterations > rows:
        raise InvalidArgument(f"--iterations {chosen.iterations} are more than the {rows} rows of --assignments")
    workloads = chosen.workloads
    if workloads is None and chosen.batch is None:
        workloads = ",".join(map(str, equal_workloads(samples, chosen.workers)))
    return replace(chosen, workloads=workloads, iterations=chosen.iterations or rows)
