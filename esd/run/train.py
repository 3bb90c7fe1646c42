"""Trains a model: on a local cluster that lives as long as the run, or on services that run already."""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from esd.data import Dataset
from esd.data.hot_batches import HotBatches
from esd.dispatcher.core.planner import check_job
from esd.run import event_log
from esd.run.best import BestModel, ModelWriter
from esd.run.cache_size import CacheSize
from esd.run.cluster import LocalServices
from esd.run.driver import drive, going_on
from esd.run.events import (
    CacheBounded,
    Ended,
    EpochTrained,
    Event,
    HotBatchesMade,
    Listener,
    Progressed,
    SamplesSkipped,
    Started,
    VariableUnread,
    ignore,
)
from esd.run.held_out import watched
from esd.run.local_settings import LocalSettings, check_local_store, unknown_variables
from esd.run.options import TABLE, RunOptions
from esd.run.prepare import PreparedRun, check_address, in_thread, prepare
from esd.run.record import history, recorded
from esd.run.results import Result, training_result
from esd.run.stream import OpenData
from esd.run.worker_here import Here
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.errors import FailedPrecondition, InvalidArgument
from esd.services.domain.jobs import JobSpec
from esd.services.domain.state import Evaluation, JobState
from esd.services.runtime.extras import require_torch
from esd.services.runtime.security import PLAINTEXT, Credentials

MODEL = "model"  # the folder of the model in the directory of a run
RESTARTS = 5  # of all services of one run together


@dataclass(frozen=True, slots=True)
class TrainedRun:
    """A run that has ended.

    Attributes:
        job: the job that was trained.
        state: the last state of the job.
        evaluations: of the held-out samples, in order; those that an earlier driver of the job made come first.
    """

    job: JobSpec
    state: JobState
    evaluations: tuple[Evaluation, ...]

    def result(self) -> Result:
        """Returns the figures of the run as JSON values, as `esd train --json` prints them."""
        return training_result(self.state, self.evaluations)


async def train(
    options: RunOptions,
    listener: Listener = ignore,
    *,
    store: str = "memory",
    shards: int = 1,
    out: Path | None = None,
    table: str | None = None,
    checkpoint_dir: Path | str | None = None,
    decision_log: Path | None = None,
    shadows: Sequence[str] | None = None,
    device: str | None = None,
    continue_from: str | None = None,
    continue_stream: bool = False,
    graphs: bool | None = None,
    opened: OpenData | None = None,
    keep_best: bool = False,
    here: Here | None = None,
) -> TrainedRun:
    """Trains once on a cluster of local processes, which ends with the run.

        options = RunOptions(data="flights", workers=2, links="100m,10m", iterations=200)
        run = await train(options, print, out=Path("out"))
        print(run.state.quality.auc)

    Cancelling it ends the job and the services. It works within a running event loop, in any thread.

    Args:
        options: the data, the model and the way of training.
        listener: gets the events of the run (esd.run.events).
        store: where the rows are: `memory`, the URL of a Redis, or `valkey` for a Valkey server of the run's own.
        shards: number of parameter-server processes.
        out: directory for the model (its folder `model`), the record of the run (esd.run.record) and the services'
            logs; None: neither model nor record, and logs in a temporary directory that stays if the run fails.
        table: name of the first table; None: `embeddings`. A table that holds a checkpoint of this job is resumed.
        checkpoint_dir: with the memory store, where checkpoints are kept; with `valkey`, where the server keeps its
            data, which otherwise ends with the run.
        decision_log: file that takes everything that plans depend on besides the samples.
        shadows: mechanisms whose cost on the same stream is computed for comparison, none if empty; None:
            ESD_DISPATCHER_SHADOW_MECHANISMS.
        device: of the workers: `cpu`, `cuda` (all GPUs in turn), `cuda:N`, `auto`, or a list with one for each worker;
            None: ESD_WORKER_DEVICE, or `cpu`.
        continue_from: table of an earlier run, whose model is trained on; in place of `table`.
        continue_stream: whether the data, a log, are read on where the run of `continue_from` ended.
        graphs: whether the model's folder gets `model.pt2` and `model.onnx`; None: as far as that is possible.
        opened: the samples, if a program has opened them; None: the options name them.
        keep_best: whether the model of the best evaluation is written in place of the last one (esd.run.best).
        here: the place of the one worker in this process; None: workers are processes.

    Raises:
        InvalidArgument: an option is wrong, or does not fit another one or the data; or a setting of a service is
            wrong, or one that a local run does not take (esd.run.local_settings).
        FailedPrecondition: the job failed, a table holds another job, or torch is not installed.
        ServiceFailed: a service has died too often.
        Unavailable, DeadlineExceeded: a service did not start, or is away for too long.
    """
    name = next(name for name in (continue_from, table, TABLE) if name is not None)

    def prepare_local() -> tuple[PreparedRun, CacheSize]:
        require_torch("training on this machine")
        check_local_store(store, checkpoint_dir)
        LocalSettings(options.workers, store, shards, checkpoint_dir, decision_log, shadows, device).check()
        if decision_log is not None and not decision_log.absolute().parent.is_dir():
            raise InvalidArgument(f"--decision-log {decision_log}: there is no directory {decision_log.parent}")
        prepared = prepare(options, table=name, opened=opened)
        cache = options.cache_size(prepared.stream.whole)
        options.bandwidths(), options.lan_bandwidth()  # looks at the links
        check_job(prepared.job, [cache.rows] * options.workers)
        return prepared, cache

    listener = event_log.kept(out, listener)
    _report_variables(listener)
    prepared, cache = await in_thread(prepare_local, listener)
    if cache.bounded:
        listener(CacheBounded(cache.rows))
    with _log_directory(out) as logs:
        async with LocalServices(
            worker_links=options.bandwidths(),
            worker_sites=options.worker_sites(),
            site_values=options.site_values,
            cache_rows=[cache.rows] * options.workers,
            logs=logs,
            lan=options.lan_bandwidth(),
            shards=shards,
            store=store,
            checkpoint_dir=checkpoint_dir,
            decision_log=decision_log,
            shadows=shadows,
            device=device,
            here=here,
            job=prepared.job,
            listener=listener,
        ) as cluster:
            run = await train_on(
                cluster,
                prepared,
                listener,
                out=out,
                continued=continue_from is not None,
                continue_stream=continue_stream,
                graphs=graphs,
                keep_best=keep_best,
            )
    _report_reading(prepared.stream.dataset, listener)
    return run


async def train_attached(
    options: RunOptions,
    listener: Listener = ignore,
    *,
    dispatcher: str,
    parameter_servers: str,
    out: Path | None = None,
    table: str | None = None,
    continue_from: str | None = None,
    continue_stream: bool = False,
    graphs: bool | None = None,
    opened: OpenData | None = None,
    keep_best: bool = False,
    credentials: Credentials = PLAINTEXT,
) -> TrainedRun:
    """Trains once on services that run already. Nothing is started or stopped.

    Args:
        options: the data, the model and the way of training; links and caches are the workers' own.
        listener: gets the events of the run (esd.run.events).
        dispatcher: `host:port`, reached from here.
        parameter_servers: `host:port` of every shard, in shard order and separated by commas, as the workers reach
            them; from here they are reached to fetch the model.
        out: directory for the model (its folder `model`) and the record of the run (esd.run.record); None: the model
            stays where it is.
        table: name of the first table; None: a new one, since a table that was trained does not start anew.
        continue_from: table of an earlier run, whose model is trained on; in place of `table`.
        continue_stream: as of `train`.
        graphs: as of `train`.
        opened: as of `train`.
        keep_best: as of `train`.
        credentials: certificates and token, for the dispatcher and the parameter servers.

    Raises:
        As `train`.
    """

    def prepare_attached() -> PreparedRun:
        check_address("--dispatcher", dispatcher)
        named = next((name for name in (continue_from, table) if name is not None), None)
        new = f"{options.data_name}-{uuid.uuid4().hex[:8]}" if named is None else named
        addresses = tuple(address.strip() for address in parameter_servers.split(","))
        prepared = prepare(options, table=new, parameter_servers=addresses, opened=opened)
        if out is not None:  # a model that has nowhere to go is better not trained
            out.mkdir(parents=True, exist_ok=True)
        return prepared

    listener = event_log.kept(out, listener)
    _report_variables(listener)
    prepared = await in_thread(prepare_attached, listener)
    job, read_on = prepared.job, prepared.stream.dataset if continue_stream else None
    if continue_from is not None:
        job = await going_on(job, credentials, listener, read_on=read_on)
    listener(Started(options, job.table.name, job.first_iteration, prepared.stream.iterations))
    async with AsyncDispatcherClient(dispatcher, credentials=credentials) as client:
        run = await _train_to_the_end(client, prepared, job, listener, out, graphs, credentials, keep_best=keep_best)
    _report_reading(prepared.stream.dataset, listener)
    return run


async def train_on(
    cluster: LocalServices,
    prepared: PreparedRun,
    listener: Listener = ignore,
    *,
    out: Path | None = None,
    continued: bool = False,
    continue_stream: bool = False,
    graphs: bool | None = None,
    keep_best: bool = False,
) -> TrainedRun:
    """Trains a prepared run on a local cluster that runs, and starts its services again when they die.

    Args:
        cluster: with as many workers as the run's options name.
        prepared: the run.
        listener: gets the events of the run (esd.run.events).
        out: directory for the model (its folder `model`) and the record of the run (esd.run.record); None: the model
            stays in the store.
        continued: whether the model that the table holds is trained on.
        continue_stream: as of `train`.
        graphs: as of `train`.
        keep_best: as of `train`.

    Raises:
        As `train`.
    """
    job = replace(prepared.job, parameter_servers=tuple(server.address for server in cluster.parameter_servers))
    async with AsyncDispatcherClient(cluster.dispatcher.address) as client:
        if continued:
            read_on = prepared.stream.dataset if continue_stream else None
            job = await going_on(job, listener=listener, read_on=read_on)
        iterations = prepared.stream.iterations
        listener(Started(prepared.options, job.table.name, job.first_iteration, iterations, cluster.page, cluster))
        work = _train_to_the_end(client, prepared, job, listener, out, graphs, keep_best=keep_best)
        return await cluster.see_through(work, RESTARTS if job.takes_checkpoints else 0, listener)


async def _train_to_the_end(
    client: AsyncDispatcherClient,
    prepared: PreparedRun,
    job: JobSpec,
    listener: Listener,
    out: Path | None,
    graphs: bool | None,
    credentials: Credentials = PLAINTEXT,
    *,
    keep_best: bool = False,
) -> TrainedRun:
    """Trains a job on its stream, with the evaluations that are asked for, and writes the model and the record."""
    listener = _with_epochs(listener, prepared, job)
    writer = ModelWriter(job, out and out / MODEL, prepared.options, credentials, listener, graphs)
    best = BestModel(writer, prepared.options) if keep_best else None
    async with (
        recorded(client, job, prepared.options, out, listener) as listener,
        watched(
            prepared.options,
            job,
            prepared.held_out,
            client,
            credentials,
            listener,
            name=prepared.held_out_name,
            evaluated=None if best is None else best.evaluated,
        ) as held_out,
    ):
        state = await drive(client, job, prepared.stream, listener, held_out)
        if held_out is not None and best is not None:
            await held_out.finish(state.iterations_confirmed)
        evaluations = tuple(held_out.evaluations) if held_out is not None else ()
        figures, past = training_result(state, evaluations), await history(client, job.name, listener)
        if best is not None and best.is_earlier_than(evaluations[-1]):
            await writer.complete(figures, past)
        else:
            await writer.write(figures, past)
        if held_out is not None and best is None:  # whatever is wrong with the samples, the model is kept
            await held_out.finish(state.iterations_confirmed)
    listener(Ended(state))
    return TrainedRun(job, state, tuple(held_out.evaluations) if held_out else ())


def _with_epochs(listener: Listener, prepared: PreparedRun, job: JobSpec) -> Listener:
    """Returns a listener that reports the end of each epoch, too, if the samples of one can be counted beforehand."""
    samples, epochs = prepared.stream.dataset.samples, prepared.options.epochs
    if samples is None or job.submitters > 1:
        return listener
    ends = [-(-samples * epoch // (epochs * job.batch_size)) for epoch in range(1, epochs + 1)]
    reported = 0

    def with_epochs(event: Event) -> None:
        nonlocal reported
        listener(event)
        if isinstance(event, Progressed):
            trained = event.state.iterations_confirmed - job.first_iteration
            while reported < epochs and trained >= ends[reported]:
                reported += 1
                listener(EpochTrained(reported, epochs))

    return with_epochs


def _report_variables(listener: Listener) -> None:
    for reason in unknown_variables():
        listener(VariableUnread(reason))


def _report_reading(dataset: Dataset, listener: Listener) -> None:
    """Reports how the samples of a run were read, once it is over."""
    if dataset.skipped:
        listener(SamplesSkipped(dataset.skipped))
    if isinstance(dataset, HotBatches):
        listener(HotBatchesMade(dataset.hot_batches))


@contextmanager
def _log_directory(out: Path | None) -> Iterator[Path]:
    """Makes the directory of the services' logs: below the output, or a temporary one that stays if the run fails."""
    if out is not None:
        logs = out / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        yield logs
        return
    try:
        logs = Path(tempfile.mkdtemp(prefix="esd-"))
    except OSError as error:
        raise FailedPrecondition(
            f"no folder for the logs of the services can be made: {error.strerror}; name one with --out, or set TMPDIR"
        ) from None
    yield logs
    shutil.rmtree(logs)
