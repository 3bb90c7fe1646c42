"""`esd train` starts all services as local processes, trains and reports."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import typer

from esd.cli import options as opt
from esd.cli.attach import check_options, run_attached
from esd.cli.driver import going_on, progress_bar, run_until_stopped, train_to_the_end, way_back_told
from esd.cli.learning import ContinueFrom
from esd.cli.options import takes_run_options
from esd.cli.report import Result, messages, print_result, report_reading
from esd.cli.seeds import SeedsOption, over_seeds, print_seeds
from esd.cli.storage import CheckpointDir, Shards, Store, Table
from esd.dispatcher.core.planner import check_job
from esd.ps_server.stores.by_url import check_store
from esd.run.cluster import LocalCluster, local_cluster
from esd.run.options import TABLE, RunOptions
from esd.run.stream import held_out_samples, training_stream
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.state import JobState

Watch = Callable[[LocalCluster, JobState], None]

RESTARTS = 5  # of all services of one run together


@takes_run_options
def command(
    chosen: RunOptions,
    context: typer.Context,
    store: Store = "memory",
    shards: Shards = 1,
    checkpoint_dir: CheckpointDir = None,
    decision_log: opt.DecisionLog = None,
    dispatcher: opt.Dispatcher = None,
    parameter_servers: opt.ParameterServers = None,
    table: Table = None,
    continue_from: ContinueFrom = None,
    seeds: SeedsOption = 1,
    as_json: opt.Json = False,
    out: opt.Out = None,
) -> None:
    """Trains a model: all services as processes of this machine, no Docker, Redis or GPU needed.

    With --dispatcher, on services that run already.
    """
    if table is not None and continue_from is not None:
        raise InvalidArgument("--continue-from names the table that is trained: leave out --table")
    if (dispatcher is None) != (parameter_servers is None):
        raise InvalidArgument("--dispatcher and --parameter-servers go together")
    if seeds > 1 and (continue_from is not None or decision_log is not None):
        raise InvalidArgument("--seeds makes several models: leave out --continue-from and --decision-log")
    if dispatcher is not None:
        check_options(context)

    def train(chosen: RunOptions, table: str | None, out: Path | None) -> Result:
        if dispatcher is not None and parameter_servers is not None:
            return run_attached(
                chosen,
                dispatcher=dispatcher,
                parameter_servers=parameter_servers,
                table=table,
                out=out,
                continue_from=continue_from,
            )
        return run(
            chosen,
            store=store,
            shards=shards,
            out=out,
            table=table,
            checkpoint_dir=checkpoint_dir,
            decision_log=decision_log,
            continue_from=continue_from,
        )

    def with_seed(seed: int) -> Result:
        """Trains a table of its own, in a directory of its own."""
        name = f"{TABLE if table is None else table}-seed-{seed}" if dispatcher is None or table is not None else None
        return train(replace(chosen, seed=seed), name, out and out / f"seed-{seed}")

    if seeds > 1:
        print_seeds(over_seeds(chosen.seed, seeds, with_seed), as_json=as_json)
    else:
        print_result(chosen.mechanism, train(chosen, table, out), as_json=as_json)


def run(
    chosen: RunOptions,
    *,
    store: str,
    shards: int,
    out: Path | None,
    table: str | None = None,
    checkpoint_dir: Path | None = None,
    decision_log: Path | None = None,
    continue_from: str | None = None,
    watch: Watch = lambda _cluster, _state: None,
) -> Result:
    """Trains once on a cluster of local processes and returns the result.

    It goes on from the model in the table `continue_from`, if that is given. `watch` sees the cluster and each state of
    the job that was polled.
    """
    check_store(store, checkpoint_dir)
    if decision_log is not None and not decision_log.absolute().parent.is_dir():
        raise InvalidArgument(f"--decision-log {decision_log}: there is no directory {decision_log.parent}")
    stream = training_stream(chosen)
    held_out_data = held_out_samples(chosen, stream)
    dataset = stream.dataset
    cache_rows = [chosen.cache_size(dataset)] * chosen.workers
    bandwidths = chosen.bandwidths()

    asked = chosen.job(
        features=dataset.features,
        labels=dataset.labels,
        dense_features=len(dataset.dense_features),
        parameter_servers=("not started",),
        stream=dataset.fingerprint,
        table=next(name for name in (continue_from, table, TABLE) if name is not None),
        iterations=stream.iterations,
    )
    check_job(asked, cache_rows)

    async def train(logs: Path, seen: Callable[[JobState], None]) -> Result:
        async with (
            local_cluster(
                shards=shards,
                store=store,
                worker_links=bandwidths,
                cache_rows=cache_rows,
                logs=logs,
                checkpoint_dir=checkpoint_dir,
                decision_log=decision_log,
                job=asked,
            ) as cluster,
            AsyncDispatcherClient(cluster.dispatcher.address) as client,
        ):
            job = replace(asked, parameter_servers=tuple(server.address for server in cluster.parameter_servers))
            if continue_from is not None:
                job = await going_on(job)
            messages.print(f"live: http://{cluster.dispatcher.page}/", highlight=False)
            with progress_bar(chosen.mechanism, job.first_iteration, stream.iterations) as bar:

                def progress(state: JobState) -> None:
                    bar(state)
                    seen(state)
                    watch(cluster, state)

                restarts = RESTARTS if job.takes_checkpoints else 0
                work = train_to_the_end(client, chosen, job, stream, progress, held_out_data, out)
                return await cluster.see_through(work, restarts, messages.print)

    keeps_checkpoints = store != "memory" or checkpoint_dir is not None
    with _log_directory(out) as logs, way_back_told("the same command" if keeps_checkpoints else None) as seen:
        result = run_until_stopped(train(logs, seen))
    report_reading(dataset)
    return result


@contextmanager
def _log_directory(out: Path | None) -> Iterator[Path]:
    """Makes the directory of the services' logs: below the output, or a temporary one that stays if the run fails."""
    if out is not None:
        logs = out / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        yield logs
        return
    logs = Path(tempfile.mkdtemp(prefix="esd-"))
    yield logs
    shutil.rmtree(logs)
