"""kill -9 of real processes: the run goes on by itself and ends with the model of an undisturbed run."""

from __future__ import annotations

import asyncio
import re
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from esd.dispatcher.service.settings import DispatcherSettings
from esd.run.cluster import LocalServices
from esd.run.driver import drive
from esd.run.events import on_progress
from esd.run.export import export_model
from esd.run.services import ServiceProcess
from esd.run.stream import global_batches, training_stream
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import EsdError
from esd.services.domain.state import JobPhase, JobState
from esd.services.domain.tables import OptimizerKind
from esd.services.runtime.security import PLAINTEXT
from tests.recovery.kills import (
    OPTIONS,
    Interruption,
    Killer,
    assert_same_run,
    dispatcher,
    interrupted_run,
    parameter_server,
    worker,
)
from tests.support import training
from tests.support.models import assert_same_model, model_arrays
from tests.support.redis_cluster import redis_cluster
from tests.support.reference import train_reference


@dataclass
class HeldBack:
    """A stream that stops after a number of samples until an event is set."""

    batches: Iterable[SampleBatch]
    samples: int
    event: threading.Event

    def __iter__(self) -> Iterator[SampleBatch]:
        left = self.samples
        for batch in self.batches:
            if left <= 0:
                assert self.event.wait(240)
            left -= len(batch)
            yield batch


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    path = tmp_path_factory.mktemp("undisturbed")
    return path, training.run(OPTIONS, store="memory", shards=2, out=path)


def test_a_killed_worker_comes_back_and_all_go_on_from_the_checkpoint(undisturbed, tmp_path):
    kill = Killer(worker)
    result = interrupted_run(OPTIONS, kill, store="memory", shards=2, out=tmp_path)
    assert [each["iterations_redone"] >= 10 for each in result["recoveries"]] == [True]
    assert_same_run(result, tmp_path, undisturbed)


def test_a_worker_that_is_stopped_in_order_comes_back_too(undisturbed, tmp_path):
    """SIGTERM: its exit code is 0, and the job is not over."""

    def stop(cluster: LocalServices) -> None:
        cluster.workers[1].process.send_signal(signal.SIGTERM)

    result = interrupted_run(OPTIONS, Interruption(stop), store="memory", shards=2, out=tmp_path)
    assert len(result["recoveries"]) == 1
    assert_same_run(result, tmp_path, undisturbed)


def test_a_killed_dispatcher_takes_the_job_up_at_the_checkpoint(undisturbed, tmp_path):
    kill = Killer(dispatcher)
    result = interrupted_run(OPTIONS, kill, store="memory", shards=2, out=tmp_path)
    assert kill.killed == "dispatcher"
    assert_same_run(result, tmp_path, undisturbed)


def test_a_dispatcher_that_stood_still_for_longer_than_a_lease_reads_what_workers_sent_meanwhile(undisturbed, tmp_path):
    def stand_still(cluster: LocalServices) -> None:
        cluster.dispatcher.process.send_signal(signal.SIGSTOP)
        time.sleep(1.5 * DispatcherSettings().lease_seconds)
        cluster.dispatcher.process.send_signal(signal.SIGCONT)

    result = interrupted_run(OPTIONS, Interruption(stand_still), store="memory", shards=2, out=tmp_path)
    assert result["recoveries"] == []
    assert_same_run(result, tmp_path, undisturbed)


def test_a_killed_parameter_server_goes_on_with_what_redis_has(undisturbed, tmp_path, redis_url):
    kill = Killer(parameter_server)
    result = interrupted_run(OPTIONS, kill, store=redis_url, shards=2, out=tmp_path)
    assert kill.killed == "ps-1"
    assert_same_run(result, tmp_path, undisturbed)


def test_a_killed_parameter_server_that_sums_is_a_recovery_where_redis_keeps_the_rows(tmp_path, redis_url):
    options = replace(OPTIONS, dense_sum="server")
    expected = training.run(options, store="memory", shards=2, out=tmp_path / "undisturbed")
    kill = Killer(parameter_server)
    result = interrupted_run(options, kill, store=redis_url, shards=2, out=tmp_path)
    assert kill.killed == "ps-1"
    assert len(result["recoveries"]) == 1
    assert_same_run(result, tmp_path, (tmp_path / "undisturbed", expected))


def test_a_killed_parameter_server_goes_back_to_its_checkpoint_directory(undisturbed, tmp_path):
    kill = Killer(parameter_server)
    keep = {"store": "memory", "shards": 2, "checkpoint_dir": tmp_path / "kept"}
    result = interrupted_run(OPTIONS, kill, **keep, out=tmp_path)
    assert [each["iterations_redone"] >= 10 for each in result["recoveries"]] == [True]
    assert_same_run(result, tmp_path, undisturbed)


def test_a_kill_where_rows_are_pushed_ahead(tmp_path):
    """Pushes ahead depend on measurements, and dispatch by a hash on the samples alone."""
    options = replace(OPTIONS, sync="proactive", mechanism="hash", hash_field=0)
    training.run(options, store="memory", shards=2, out=tmp_path / "undisturbed")
    result = interrupted_run(options, Killer(worker), store="memory", shards=2, out=tmp_path)
    assert [each["iterations_redone"] >= 10 for each in result["recoveries"]] == [True]
    assert_same_model(tmp_path, tmp_path / "undisturbed")


@pytest.mark.parametrize(("sync", "victim"), [("full", worker), ("write-through", parameter_server), ("none", worker)])
def test_a_kill_where_all_that_is_trained_is_pushed(sync, victim, tmp_path):
    options = replace(OPTIONS, sync=sync)
    expected = training.run(options, store="memory", shards=2, out=tmp_path / "undisturbed")
    keep = {"store": "memory", "shards": 2, "checkpoint_dir": tmp_path / "kept"}
    result = interrupted_run(options, Killer(victim), **keep, out=tmp_path)
    assert [each["iterations_redone"] >= 10 for each in result["recoveries"]] == [True]
    assert_same_run(result, tmp_path, (tmp_path / "undisturbed", expected))


@pytest.mark.parametrize("victim", [worker, dispatcher, parameter_server])
def test_a_kill_where_rows_go_directly(victim, tmp_path):
    """Rows on their way from worker to worker are trained again; the workers meet anew, at new addresses."""
    options = replace(OPTIONS, direct=True)
    expected = training.run(options, store="memory", shards=2, out=tmp_path / "undisturbed")
    keep = {"store": "memory", "shards": 2, "checkpoint_dir": tmp_path / "kept"}
    result = interrupted_run(options, Killer(victim), **keep, out=tmp_path)
    assert sum(result["direct"]["rows"]) > 100
    assert_same_run(result, tmp_path, (tmp_path / "undisturbed", expected))
    assert result["direct"]["rows"] == expected["direct"]["rows"]


@pytest.mark.parametrize("victim", [worker, dispatcher, parameter_server])
def test_a_kill_where_rows_are_replicated(victim, tmp_path):
    """The rows have been chosen before the checkpoint; they are pulled again at each worker, and stay replicated."""
    options = replace(OPTIONS, sync="replicated:100", seed=8)
    expected = training.run(options, store="memory", shards=2, out=tmp_path / "undisturbed")
    keep = {"store": "memory", "shards": 2, "checkpoint_dir": tmp_path / "kept"}
    result = interrupted_run(options, Killer(victim), **keep, out=tmp_path)
    assert any(result["bytes"]["reduced"])
    assert_same_run(result, tmp_path, (tmp_path / "undisturbed", expected))


@pytest.mark.parametrize(
    ("way", "victim"),
    [
        ("server", worker),
        ("server", dispatcher),
        ("server", parameter_server),
        ("low-rank:2", worker),
        ("every:7", worker),
        ("every:7", dispatcher),
    ],
)
def test_a_kill_where_sums_are_made_at_the_servers(way, victim, tmp_path):
    """A sum that lacks a gradient is never made; the gradients of the epoch before are none of the next one's."""
    options = replace(OPTIONS, dense_sum=way, model="tests.support.running_model:Net")
    expected = training.run(options, store="memory", shards=2, out=tmp_path / "undisturbed")
    keep = {"store": "memory", "shards": 2, "checkpoint_dir": tmp_path / "kept"}
    kill = Killer(victim)
    result = interrupted_run(options, kill, **keep, out=tmp_path)
    assert kill.killed is not None
    assert_same_run(result, tmp_path, (tmp_path / "undisturbed", expected))


@pytest.mark.parametrize("victim", [worker, dispatcher])
def test_a_kill_where_samples_are_in_hot_and_normal_batches(victim, tmp_path, capsys):
    """The driver makes the same batches again, from the first sample on, and leaves out the trained ones."""
    data = "synthetic:zipf?samples=4000&fields=3&keys=300&skew=1.6"
    options = replace(OPTIONS, data=data, model="dlrm", sync="replicated:100", hot_batches=20, seed=8)
    expected = training.run(options, store="memory", shards=2, out=tmp_path / "undisturbed")
    assert int(re.search(r"(\d+) mini-batches were hot", capsys.readouterr().err)[1]) > 5
    keep = {"store": "memory", "shards": 2, "checkpoint_dir": tmp_path / "kept"}
    kill = Killer(victim)
    result = interrupted_run(options, kill, **keep, out=tmp_path)
    assert kill.killed is not None
    assert_same_run(result, tmp_path, (tmp_path / "undisturbed", expected))


@pytest.mark.parametrize("victim", [worker, dispatcher, parameter_server])
def test_a_kill_where_copies_may_be_stale(victim, tmp_path):
    """The model depends on the copy that each worker trained, and all of it is planned again as it was."""
    options = replace(OPTIONS, sync="bounded:6,3")
    expected = training.run(options, store="memory", shards=2, out=tmp_path / "undisturbed")
    assert expected["staleness"]["missing_updates"] > 0
    keep = {"store": "memory", "shards": 2, "checkpoint_dir": tmp_path / "kept"}
    kill = Killer(victim)
    result = interrupted_run(options, kill, **keep, out=tmp_path)
    assert kill.killed is not None
    assert_same_run(result, tmp_path, (tmp_path / "undisturbed", expected))
    assert result["staleness"] == expected["staleness"]


def test_a_dispatcher_may_die_again_while_it_is_started(undisturbed, tmp_path):
    """The second kill comes as soon as there is another process, which is not ready yet."""
    killed: list[asyncio.subprocess.Process] = []

    async def kill_twice(service: ServiceProcess) -> None:
        for _ in range(2):
            while service.process in killed:  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0.001)
            killed.append(service.process)
            service.process.kill()

    def kill(cluster: LocalServices) -> None:
        tasks.append(asyncio.create_task(kill_twice(cluster.dispatcher)))

    tasks: list[asyncio.Task[None]] = []
    result = interrupted_run(OPTIONS, Interruption(kill), store="memory", shards=2, out=tmp_path)
    assert len(killed) == 2
    assert_same_run(result, tmp_path, undisturbed)


def test_a_parameter_server_may_die_while_the_model_is_fetched(undisturbed, tmp_path):
    killed = []

    def watch(cluster: LocalServices, state: JobState) -> None:
        if state.phase is JobPhase.FINISHED:  # the last state that is polled
            killed.append(cluster.parameter_servers[0].process)
            killed[0].kill()

    keep = {"store": "memory", "shards": 2, "checkpoint_dir": tmp_path / "kept"}
    result = training.run(OPTIONS, **keep, out=tmp_path, watch=watch)
    assert killed
    assert_same_run(result, tmp_path, undisturbed)


def test_a_killed_parameter_server_that_kept_rows_in_memory_only_ends_the_run_cleanly(tmp_path):
    kill = Killer(parameter_server)
    with pytest.raises(EsdError, match=r"store in memory loses them.*; the last checkpoint is 25"):
        interrupted_run(OPTIONS, kill, store="memory", shards=2, out=tmp_path)


@pytest.mark.parametrize(
    "changes",
    [{}, {"dense_sum": "every:1", "optimizer": OptimizerKind.SGD, "learning_rate": 0.05}],
    ids=["summed", "averaged"],
)
async def test_survivors_go_on_and_a_late_worker_joins_at_a_checkpoint(changes, tmp_path):
    """The global batch stays the same, so the model does: up to the order of float sums."""
    options = replace(OPTIONS, workers=3, links="1g,1g,100m", batch=20, iterations=110, **changes)
    dataset = training_stream(options).dataset
    settings = {"shards": 1, "store": "memory", "worker_links": options.bandwidths(), "cache_rows": [600] * 3}
    restarts, back = [], threading.Event()
    async with (
        LocalServices(**settings, logs=tmp_path, rejoin_seconds=2.0) as cluster,
        AsyncDispatcherClient(cluster.dispatcher.address) as client,
        asyncio.TaskGroup() as tasks,
    ):
        kill = Killer(worker, iteration=30)

        def watch(state: JobState) -> None:
            kill(cluster, state)
            there = [each.slot for each in state.workers]
            if restarts and 1 in there:
                back.set()
            if not restarts and state.phase is JobPhase.RUNNING and 1 not in there and state.iterations_confirmed >= 40:
                restarts.append(tasks.create_task(cluster.workers[1].restart()))

        job = options.job(
            features=dataset.features,
            dense_features=dataset.dense_features,
            parameter_servers=(cluster.parameter_servers[0].address,),
        )

        state = await drive(
            client, job, HeldBack(training_stream(options), 75 * job.batch_size, back), on_progress(watch)
        )
        assert restarts
        assert [each.slot for each in state.workers] == [0, 1, 2]
        assert any("worker-1" in each.cause and each.cause.endswith("joins") for each in state.recoveries)
        await export_model(job, tmp_path / "model", PLAINTEXT, graphs=False)

    expected = train_reference(job, global_batches(training_stream(options), job.batch_size))
    model = model_arrays(tmp_path / "model")
    np.testing.assert_array_equal(model["ids"], expected.ids)
    np.testing.assert_array_equal(model["versions"], expected.versions)
    assert np.linalg.norm(model["rows"] - expected.rows) < 1e-3 * np.linalg.norm(expected.rows)


def test_redis_may_be_killed_and_started_again(undisturbed, tmp_path, own_redis):
    """With appendfsync always, nothing that was acknowledged is lost."""

    def kill(_: LocalServices) -> None:
        own_redis.kill()
        own_redis.start()

    result = interrupted_run(OPTIONS, Interruption(kill), store=own_redis.url, shards=2, out=tmp_path)
    assert_same_run(result, tmp_path, undisturbed)


def test_a_redis_cluster_fails_over(undisturbed, tmp_path):
    """A replica takes over for a primary that is killed; nothing is redone, for it has all that was acknowledged."""
    with redis_cluster(tmp_path, replicas=1) as nodes:
        kill = Interruption(lambda _: nodes[0].kill())
        result = interrupted_run(OPTIONS, kill, store=f"redis+cluster://{nodes[1].address}", shards=2, out=tmp_path)
    assert not result["recoveries"]
    assert_same_run(result, tmp_path, undisturbed)


def test_a_finished_run_can_be_repeated_on_its_store(undisturbed, tmp_path, redis_url):
    """The second run goes on from the last checkpoint of the first."""
    for run in ("first", "second"):
        result = training.run(OPTIONS, store=redis_url, shards=2, out=tmp_path / run)
        assert_same_run(result, tmp_path / run, undisturbed)
