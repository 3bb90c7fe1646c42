"""`esd simulate`: the dispatch of a run without network and tensors: operations, cost, makespan, hit ratio."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from esd.cli import options as opt
from esd.cli.options import takes_run_options
from esd.cli.report import Result, alternative_result, print_result, simulation_result
from esd.cli.storage import CheckpointDir, Shards, Store
from esd.dispatcher.core.decision_log import JobOpened, StreamEnded, read_decisions
from esd.dispatcher.core.mechanisms import Replay
from esd.dispatcher.core.planner import Planner
from esd.dispatcher.simulator.alternatives import ALTERNATIVES, Cluster, get_alternative, simulate_alternative
from esd.dispatcher.simulator.decision_replay import replay_decisions
from esd.dispatcher.simulator.dimensions import in_tables, with_dimensions
from esd.dispatcher.simulator.simulate import simulate
from esd.run.budget import AUTO
from esd.run.dimensions import parse_dimensions
from esd.run.hot_batches import in_hot_batches
from esd.run.options import RunOptions
from esd.run.stream import READ_SAMPLES, global_batches, simulated_stream
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.jobs import equal_workloads
from esd.services.domain.sync import OnDemand
from esd.services.wire.jobs import job_of_json
from esd.services.wire.plans import digest_of

Trace = Annotated[Path | None, typer.Option(help="uint64 [N, F] ids in a .npy file, instead of --data.")]
Assignments = Annotated[
    Path | None, typer.Option(help="int32 [iterations, k] workers in a .npy file, instead of a mechanism.")
]
AlternativeOption = Annotated[
    str | None,
    typer.Option(
        "--alternative",
        help=f"A protocol that is simulated only, in place of --sync: {', '.join(ALTERNATIVES)}.",
    ),
]
Dims = Annotated[
    str | None,
    typer.Option(
        help="Values per row by field, where rows differ in size: one number per field, 16,64,..., or some by name, "
        "origin=16,dest=16 (of a trace: 0=16,1=16); the others have --dim. A cache then has "
        "the bytes that its rows would have with --dim values each.",
        show_default="--dim",
    ),
]
ReplayLog = Annotated[
    Path | None,
    typer.Option(
        help="Decision log of a run: makes its plans again from the same data (--data, --seed, --skip-bad) and checks "
        "them byte for byte. Everything else is as recorded."
    ),
]
ComputeUs = Annotated[
    str, typer.Option(help="Computation per sample, microseconds, of all workers or of each: 50 or 50,50,200,200.")
]


@takes_run_options
def command(
    chosen: RunOptions,
    trace: Trace = None,
    assignments: Assignments = None,
    compute_us: ComputeUs = "0",
    alternative: AlternativeOption = None,
    dims: Dims = None,
    replay: ReplayLog = None,
    _store: Store = "memory",  # a training command can be simulated as it stands
    _shards: Shards = 1,
    _checkpoint_dir: CheckpointDir = None,
    _decision_log: opt.DecisionLog = None,
    as_json: opt.Json = False,
    _out: opt.Out = None,
) -> None:
    """Simulates a run: the same decisions and operations, without network and tensors."""
    if replay is not None:
        for option, value in (("--trace", trace), ("--assignments", assignments), ("--dims", dims)):
            if value is not None:
                raise InvalidArgument(f"--replay makes the recorded plans again, {option} would change them")
        print_result(f"replay of {replay.name}", replay_result(chosen, replay), as_json=as_json)
        return
    budget = None if chosen.budget == AUTO else chosen.budget
    chosen = replace(chosen, measured_links=False, budget=budget)  # nothing is measured here
    table = None if assignments is None else _load(assignments, np.int32, "--assignments")
    ids = None if trace is None else _load(trace, np.uint64, "--trace")
    if table is not None:
        chosen = _fit(chosen, table)
    name = chosen.mechanism if table is None else "given assignments"
    if alternative is not None or chosen.sync != OnDemand.name:
        name += f", {alternative or chosen.sync}"
    if chosen.direct:
        name += ", direct"
    seconds = _compute_seconds(compute_us, chosen.workers)
    print_result(name, run(chosen, ids, table, seconds, alternative, dims), as_json=as_json)


def run(
    chosen: RunOptions,
    trace: NDArray[np.uint64] | None,
    assignments: NDArray[np.int32] | None,
    sample_seconds: Sequence[float] | None = None,
    alternative: str | None = None,
    dims: str | None = None,
) -> Result:
    """Simulates one run.

    Args:
        chosen: the options.
        trace: the stream, instead of the data set that the options name.
        assignments: who trains what, instead of the mechanism that the options name.
        sample_seconds: [n], what each worker computes per sample; nothing by default.
        alternative: the protocol that is charged in place of the job's own.
        dims: values per row by field, as `--dims`.
    """
    for option, value in (("--trace", trace), ("--dims", dims)):
        if chosen.hot_batches and value is not None:
            raise InvalidArgument(f"--hot-batches goes by the tables of --data: leave out {option}")
    stream = simulated_stream(chosen, trace)
    chosen = replace(chosen, lr_schedule="constant", dense_lr_schedule=None)  # nothing is trained, whatever the rate
    job = chosen.job(
        features=stream.features,
        dense_features=stream.dense_features,
        parameter_servers=("simulated",),
        labels=stream.labels,
    )
    caches = [stream.cache_rows] * chosen.workers
    mechanism = None if assignments is None else Replay(assignments, chosen.workers)
    batches: Iterable[SampleBatch] = stream.batches()
    if dims is not None:
        job, numbers = with_dimensions(job, parse_dimensions(dims, [each.name for each in stream.features], chosen.dim))
        batches = in_tables(batches, numbers) if len(job.tables) > 1 else batches
    planner = Planner(job, chosen.bandwidths(), caches, mechanism=mechanism)
    if alternative is None:
        return simulation_result(job, simulate(planner, batches, sample_seconds=sample_seconds))
    if not isinstance(job.sync, OnDemand):
        raise InvalidArgument(f"--alternative {alternative} takes the place of --sync {chosen.sync}: leave one out")
    if job.sync.delivers:
        raise InvalidArgument(f"--alternative {alternative} sends no rows from worker to worker: leave out --direct")
    if dims is not None:
        raise InvalidArgument("--dims does not go with --alternative, which counts rows of one size")
    if job.forgets_rows:
        raise InvalidArgument("--at-max-rows forget does not go with --alternative, which forgets no rows")
    if job.workload_limits is not None:
        raise InvalidArgument("--workloads balanced does not go with --alternative: give a list")
    cluster = Cluster(
        capacities=caches,
        transfer_seconds=planner.cost_model.transfer_seconds,
        sample_seconds=sample_seconds or [0.0] * chosen.workers,
        profile=stream.profile() if alternative == "fae" else np.empty(0, np.uint64),
    )
    protocol = get_alternative(alternative, cluster)
    return alternative_result(simulate_alternative(planner, stream.batches(), protocol, sample_seconds=sample_seconds))


def replay_result(chosen: RunOptions, log: Path) -> Result:
    """Replays a decision log on the data that the options name.

    Raises:
        FailedPrecondition: a plan differs from the recorded one.
        InvalidArgument: the file is no decision log, or the data ends before it does.
    """
    opened = next(read_decisions(log), None)
    if not isinstance(opened, JobOpened):
        raise InvalidArgument(f"decision log {log} is empty")
    job = job_of_json(opened.job)
    ends = (each.iteration for each in read_decisions(log) if isinstance(each, StreamEnded))
    end = next(ends, None)  # the data may go on, and a decision with a lookahead would see that

    samples = replace(chosen, hot_batches=0).open(READ_SAMPLES)
    if chosen.hot_batches:
        samples = in_hot_batches(samples, job, chosen.hot_batches)

    def batches() -> Iterator[SampleBatch]:
        return islice(global_batches(samples, job.batch_size), end)

    return simulation_result(job, replay_decisions(lambda: read_decisions(log), job, batches, digest_of))


def _fit(chosen: RunOptions, assignments: NDArray[np.int32]) -> RunOptions:
    """Takes what was not given from the table: iterations from its rows, the global batch from its columns."""
    rows, samples = assignments.shape
    if chosen.iterations is not None and chosen.iterations > rows:
        raise InvalidArgument(f"--iterations {chosen.iterations} are more than the {rows} rows of --assignments")
    workloads = chosen.workloads
    if workloads is None and chosen.batch is None:
        workloads = ",".join(map(str, equal_workloads(samples, chosen.workers)))
    return replace(chosen, workloads=workloads, iterations=chosen.iterations or rows)


def _compute_seconds(text: str, workers: int) -> list[float]:
    """Reads the time that each worker computes per sample. Returns seconds, one number per worker."""
    try:
        seconds = [float(part) / 1e6 for part in text.split(",")]
    except ValueError:
        raise InvalidArgument(f"--compute-us {text!r} is not a list of numbers") from None
    if len(seconds) not in (1, workers) or not all(math.isfinite(s) and s >= 0 for s in seconds):
        raise InvalidArgument(f"--compute-us {text!r} must be one number or {workers}, not negative")
    return seconds * (workers if len(seconds) == 1 else 1)


def _load(path: Path, dtype: type[np.generic], option: str) -> NDArray[Any]:
    """Reads a matrix from a .npy file.

    Raises:
        InvalidArgument: the file cannot be read, holds another shape or dtype, or is empty.
    """
    try:
        with path.open("rb") as file:
            array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise InvalidArgument(f"{option} {path} cannot be read: {error}") from None
    if array.ndim != 2 or array.dtype != dtype:
        raise InvalidArgument(
            f"{option} {path} is {array.dtype} {list(array.shape)}, it must be {np.dtype(dtype)} [., .]"
        )
    if not array.size:
        raise InvalidArgument(f"{option} {path} is empty: {list(array.shape)}")
    return array
