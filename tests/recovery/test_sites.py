"""Samples of two sites with two workers each: none goes across, and one process trains the same model."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from esd.run.cluster import LocalServices
from esd.run.driver import drive
from esd.run.events import on_progress
from esd.run.export import export_model
from esd.run.options import RunOptions
from esd.run.stream import first_samples, global_batches, training_stream
from esd.services.clients.dispatcher import DispatcherClient
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.errors import EsdError
from esd.services.domain.sites import site_key
from esd.services.domain.state import JobState
from esd.services.domain.tables import OptimizerKind
from esd.services.domain.watched import MoveReason
from esd.services.runtime.security import PLAINTEXT
from tests.recovery.kills import OPTIONS, Killer, dispatcher, interrupted_run, parameter_server, worker
from tests.support import training
from tests.support.models import assert_trained
from tests.support.reference import train_reference

SITES = ("north", "north", "south", "south")
SIZE = 40  # samples of a global batch


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> RunOptions:
    """A run over visits: each has an id of its own, and the sites share items but no users."""
    folder, rng = tmp_path_factory.mktemp("visits"), np.random.default_rng(7)
    lines = ["clicked,visit,user,item,price,shop"]
    for visit in range(OPTIONS.iterations * SIZE):
        shop = rng.choice(["north", "south"], p=[0.7, 0.3])
        user, item = rng.integers(0, 60), rng.zipf(1.5) % 80
        lines.append(f"{rng.integers(0, 2)},{visit},{shop}{user},{item},{rng.random():.3f},{shop}")
    (folder / "visits.csv").write_text("\n".join(lines) + "\n")
    schema = tmp_path_factory.mktemp("schema") / "visits.toml"
    schema.write_text('label = "clicked"\nids = ["visit", "user", "item"]\ndense = ["price"]\nsite = "shop"\n')
    return replace(
        OPTIONS, data=str(folder / "visits.csv"), schema=schema, workers=4, links="20m,10m,20m,10m", batch=SIZE // 4,
        sites=",".join(SITES), optimizer=OptimizerKind.SGD, learning_rate=0.05, cache_rows=130, iterations=None,
    )  # fmt: skip


class Observer:
    """Watches all plans from the first on, and notes at which site each row is pulled."""

    def __init__(self) -> None:
        self.pulled: dict[int, set[str]] = {}
        self.evicted = 0
        self._thread: threading.Thread | None = None

    def __call__(self, cluster: LocalServices, state: JobState) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, args=(cluster.dispatcher.address, state.job.name))
            self._thread.start()

    def _watch(self, address: str, job: str) -> None:
        with DispatcherClient(address) as client:
            for plans in client.watch_plans(job, 0, ids=True):
                for each in plans.workers:
                    for moves in each.moves:
                        self.evicted += moves.rows if moves.reason is MoveReason.EVICT_PUSH else 0
                        if moves.reason in (MoveReason.PULL, MoveReason.DIRECT_PULL) and moves.ids is not None:
                            for row in moves.ids.tolist():
                                self.pulled.setdefault(row, set()).add(SITES[each.slot])

    def join(self) -> None:
        assert self._thread is not None
        self._thread.join(60)
        assert not self._thread.is_alive()


def assert_model_of_one_process(options: RunOptions, path: Path) -> None:
    data = options.open(1024)
    job = options.job(features=data.features, dense_features=data.dense_features, parameter_servers=("none",))
    assert_trained(path / "model", train_reference(job, global_batches(first_samples(data, None), SIZE)), 1e-5)


def own_rows(options: RunOptions) -> Iterator[tuple[int, str]]:
    """Yields the rows of visits and users, which only one site has, with its name."""
    names = {site_key(name): name for name in SITES}
    for batch in options.open(1024):
        assert batch.sites is not None
        for visit, site in zip(batch.by_field[:, :2].tolist(), batch.sites.tolist(), strict=True):
            yield from ((row, names[site]) for row in visit)


def test_an_observer_sees_no_sample_go_across(options: RunOptions, tmp_path: Path) -> None:
    observer = Observer()
    result = training.run(options, watch=observer, store="memory", shards=2, out=tmp_path)
    observer.join()
    assert result["iterations"] == OPTIONS.iterations
    assert observer.evicted > 0
    rows = dict(own_rows(options))
    assert {row: observer.pulled[row] for row in rows} == {row: {site} for row, site in rows.items()}
    assert {"north", "south"} in observer.pulled.values()  # items move between sites, as rows
    assert_model_of_one_process(options, tmp_path)


@pytest.mark.parametrize("victim", [worker, dispatcher, parameter_server])
def test_a_killed_process_leaves_the_model_of_one_process(options, tmp_path, victim):
    kill = Killer(victim)
    keep = {"store": "memory", "shards": 2, "checkpoint_dir": tmp_path / "kept"}
    result = interrupted_run(options, kill, **keep, out=tmp_path)
    assert kill.killed
    assert result["iterations"] == OPTIONS.iterations
    assert_model_of_one_process(options, tmp_path)


@asynccontextmanager
async def cluster_at_sites(options: RunOptions, logs: Path) -> AsyncIterator[LocalServices]:
    """Services of which none is started again."""
    async with LocalServices(
        worker_links=options.bandwidths(), worker_sites=options.worker_sites(), cache_rows=[130] * options.workers,
        logs=logs, rejoin_seconds=1.0,
    ) as cluster:  # fmt: skip
        yield cluster


async def driven(options: RunOptions, cluster: LocalServices, kill: Killer, path: Path) -> JobState:
    """The last state of a job from which a worker is taken when it has a checkpoint, and has trained further."""
    stream = training_stream(options)
    job = options.job(
        features=stream.dataset.features,
        labels=stream.dataset.labels,
        dense_features=stream.dataset.dense_features,
        parameter_servers=(cluster.parameter_servers[0].address,),
    )
    async with AsyncDispatcherClient(cluster.dispatcher.address) as client:
        state = await drive(client, job, stream, on_progress(lambda state: kill(cluster, state)))
        await export_model(job, path / "model", PLAINTEXT, graphs=False)
    return state


async def test_the_samples_of_a_lost_worker_go_to_the_others_of_its_site(options, tmp_path):
    kill = Killer(worker, iteration=30)
    async with cluster_at_sites(options, tmp_path) as cluster:
        state = await driven(options, cluster, kill, tmp_path)
    assert kill.killed == "worker-1"
    assert [each.slot for each in state.workers] == [0, 2, 3]
    assert_model_of_one_process(options, tmp_path)


async def test_a_site_without_workers_ends_the_run_by_its_name(options, tmp_path, monkeypatch):
    """Other sites must not train its samples, and to go on without them would be to lose them."""
    monkeypatch.setenv("ESD_DISPATCHER_JOIN_SECONDS", "15")
    alone = replace(options, workers=3, links="20m,20m,10m", sites="south,north,south")
    kill = Killer(worker, iteration=30)
    async with cluster_at_sites(alone, tmp_path) as cluster:
        with pytest.raises(EsdError, match="no worker of site 'north' came back within 15 s, and its samples are"):
            await driven(alone, cluster, kill, tmp_path)
    assert kill.killed == "worker-1"
