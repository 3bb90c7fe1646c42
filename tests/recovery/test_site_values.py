"""Labels and dense features that stay at their sites: they never travel, and the model is the same."""

from __future__ import annotations

import asyncio
import math
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from esd.data.site_values import write_site_values
from esd.run.cluster import LocalServices
from esd.run.driver import drive
from esd.run.export import export_model
from esd.run.options import RunOptions
from esd.run.stream import first_samples, global_batches, training_stream
from esd.run.submitting import submit_part
from esd.services.clients.dispatcher_async import AsyncDispatcherClient
from esd.services.domain.batches import SampleBatch
from esd.services.domain.errors import EsdError
from esd.services.domain.tables import OptimizerKind
from esd.services.runtime.security import PLAINTEXT
from esd.services.runtime.whole_files import make_folder
from tests.recovery.kills import OPTIONS, Killer, dispatcher, interrupted_run, parameter_server, worker
from tests.support import training
from tests.support.listening_proxy import ListeningProxy
from tests.support.models import assert_same_model, assert_trained
from tests.support.reference import train_reference
from tests.support.stream_parts import merged

SITES = ("north", "north", "south", "south")
SIZE = 40  # samples of a global batch
SCHEMA = """
label = ["paid", "stayed"]
label-range = [0, 1]
ids = ["visit", "user", "item"]
dense = ["price", "hour"]
site = "shop"
"""
WITHIN_SECONDS = 120  # in which a job ends by name


def write_visits(folder: Path, seed: int) -> str:
    """Writes a file for each site, and returns the pattern of both. No two samples have the same values."""
    rng, iterations = np.random.default_rng(seed), OPTIONS.iterations
    assert iterations is not None
    for site, share in (("north", 0.7), ("south", 0.3)):
        lines = ["paid,stayed,visit,user,item,price,hour,shop"]
        for visit in range(round(share * iterations * SIZE)):
            stayed, price, hour = rng.random(3)
            user, item = f"{site}{rng.integers(0, 60)}", rng.zipf(1.5) % 80
            lines.append(f"{rng.integers(0, 2)},{stayed:.7f},{site}{visit},{user},{item},{price:.7f},{hour:.7f},{site}")
        (folder / f"{site}.csv").write_text("\n".join(lines) + "\n")
    return str(folder / "*.csv")


def options_of(folder: Path, data: str) -> RunOptions:
    """A run over visits in which samples travel as a whole. Shuffling mixes the files of the sites."""
    schema = folder / "visits.toml"
    schema.write_text(SCHEMA)
    return replace(
        OPTIONS, data=data, schema=schema, workers=4, links="20m,10m,20m,10m", batch=SIZE // 4, hidden="16",
        shuffle=1000, sites=",".join(SITES), optimizer=OptimizerKind.SGD, learning_rate=0.05, cache_rows=130,
        iterations=None,
    )  # fmt: skip


def by_reference(options: RunOptions, folder: Path) -> RunOptions:
    write_site_values(options.open_all(options.data, 1024), options.worker_sites(), folder)
    return replace(options, site_values=folder)


@pytest.fixture(scope="module")
def travelling(tmp_path_factory: pytest.TempPathFactory) -> RunOptions:
    visits, described = tmp_path_factory.mktemp("visits"), tmp_path_factory.mktemp("schema")
    return options_of(described, write_visits(visits, seed=7))


@pytest.fixture(scope="module")
def staying(travelling: RunOptions, tmp_path_factory: pytest.TempPathFactory) -> RunOptions:
    return by_reference(travelling, tmp_path_factory.mktemp("values"))


@pytest.fixture(scope="module")
def undisturbed(travelling: RunOptions, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model of the samples as they are, from a run in which nothing was killed."""
    path = tmp_path_factory.mktemp("undisturbed")
    result = training.run(travelling, store="memory", shards=2, out=path)
    assert 0 < result["auc"] < 1
    return path


def assert_model_of_one_process(options: RunOptions, path: Path, order: Sequence[SampleBatch] | None = None) -> None:
    """Compares a model with the model of one process, which is given whole samples, in this order or their own."""
    data = replace(options, site_values=None).open(1024)
    job = options.job(
        features=data.features, dense_features=data.dense_features, labels=data.labels, parameter_servers=("none",)
    )
    samples = global_batches(first_samples(data, None) if order is None else order, SIZE)
    assert_trained(path / "model", train_reference(job, samples), 1e-5)


class Heard:
    """A cluster that is reached through proxies only: the dispatcher by the driver and all workers, and the server."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self.dispatcher: ListeningProxy | None = None
        self.server: ListeningProxy | None = None

    async def reach_dispatcher(self, _worker: str, address: str) -> str:
        if self.dispatcher is None:
            self.dispatcher = await self._stack.enter_async_context(ListeningProxy.running(address))
        return self.dispatcher.address

    def found(self, patterns: Sequence[bytes]) -> list[int]:
        """Counts the patterns that the dispatcher and the parameter server have got or sent."""
        assert self.dispatcher is not None
        assert self.server is not None
        return [self.dispatcher.found(patterns), self.server.found(patterns)]


@asynccontextmanager
async def cluster_of(options: RunOptions, logs: Path, **further: Any) -> AsyncIterator[LocalServices]:
    """Services of which none is started again."""
    async with LocalServices(
        worker_links=options.bandwidths(), worker_sites=options.worker_sites(), logs=logs, rejoin_seconds=1.0,
        cache_rows=[130] * options.workers, **{"site_values": options.site_values} | further,
    ) as cluster:  # fmt: skip
        yield cluster


async def driven(options: RunOptions, dispatcher: str, server: str, out: Path | None = None) -> None:
    """Submits the samples and sees the job to its end."""
    stream = training_stream(options)
    job = options.job(
        features=stream.dataset.features,
        labels=stream.dataset.labels,
        dense_features=stream.dataset.dense_features,
        parameter_servers=(server,),
    )
    async with asyncio.timeout(WITHIN_SECONDS), AsyncDispatcherClient(dispatcher) as client:
        await drive(client, job, stream)
        if out is not None:
            await export_model(job, out / "model", PLAINTEXT, graphs=False)


async def trained_and_heard(options: RunOptions, path: Path, patterns: Sequence[bytes]) -> list[int]:
    """Trains, and counts the patterns that have passed."""
    make_folder(path)
    async with AsyncExitStack() as stack:
        heard = Heard(stack)
        async with cluster_of(options, path, reach_dispatcher=heard.reach_dispatcher) as cluster:
            heard.server = await stack.enter_async_context(ListeningProxy.running(cluster.parameter_servers[0].address))
            assert heard.dispatcher is not None
            await driven(options, heard.dispatcher.address, heard.server.address, path)
        return heard.found(patterns)


async def test_labels_and_dense_features_do_not_travel_and_the_model_is_the_same(travelling, staying, tmp_path):
    whole = SampleBatch.concatenate(list(travelling.open_all(travelling.data, 1024)))
    # 8 bytes each, as both labels and both dense features of a sample follow each other in every message.
    patterns = [row.tobytes() for row in (*whole.labels[::20], *whole.dense[::20])]
    with_them = await trained_and_heard(travelling, tmp_path / "travelling", patterns)
    assert min(with_them) > 0.9 * len(patterns)  # frames of HTTP/2 cut a few
    assert await trained_and_heard(staying, tmp_path / "staying", patterns) == [0, 0]
    assert_same_model(tmp_path / "staying", tmp_path / "travelling")
    assert_model_of_one_process(staying, tmp_path / "staying")


@pytest.mark.parametrize("victim", [worker, dispatcher, parameter_server])
def test_a_killed_process_leaves_the_model_of_samples_that_travel(staying, undisturbed, tmp_path, victim):
    kill = Killer(victim)
    keep = {"store": "memory", "shards": 2, "checkpoint_dir": tmp_path / "kept"}
    result = interrupted_run(staying, kill, **keep, out=tmp_path)
    assert kill.killed
    assert result["iterations"] == OPTIONS.iterations
    assert result["loss"] > 0
    assert math.isnan(result["auc"])  # scores stay at the site, as labels do
    assert_same_model(tmp_path, undisturbed)


def test_a_model_goes_on_by_reference_as_it_would_with_samples_that_travel(travelling, staying, tmp_path):
    training.run(travelling, store="memory", checkpoint_dir=tmp_path / "kept")
    shutil.copytree(tmp_path / "kept", tmp_path / "copy")
    for options, kept, name in ((travelling, "kept", "travelling"), (staying, "copy", "staying")):
        later = replace(options, shuffle=500)  # another order of the samples
        training.run(
            later, store="memory", checkpoint_dir=tmp_path / kept, continue_from="embeddings", out=tmp_path / name
        )
    assert_same_model(tmp_path / "staying", tmp_path / "travelling")


async def test_a_submitter_at_each_site_has_the_files_of_its_own_site_alone(travelling, tmp_path):
    parts, values = {}, tmp_path / "values"
    for site in ("north", "south"):
        data = Path(travelling.data).parent / f"{site}.csv"
        part = replace(travelling, data=str(data), shuffle=0, submitters=2, site_values=tmp_path / site)
        write_site_values(part.open_all(part.data, 1024), [site], tmp_path / site)
        shutil.copytree(tmp_path / site / site, values / site)
        parts[site] = part
    async with cluster_of(parts["north"], tmp_path, site_values=values) as cluster, asyncio.TaskGroup() as tasks:
        there = cluster.dispatcher.address, cluster.parameter_servers[0].address
        tasks.create_task(driven(parts["north"], *there, tmp_path))
        async with AsyncDispatcherClient(there[0]) as client:
            await submit_part(client, parts["south"], 1)
    wholes = [SampleBatch.concatenate(list(part.open_all(part.data, 1024))) for part in parts.values()]
    order = merged([[whole[at : at + 1] for at in range(len(whole))] for whole in wholes], [SIZE // 2] * 2)
    assert_model_of_one_process(travelling, tmp_path, order)


async def fails_by(options: RunOptions, logs: Path, pattern: str, **workers: Any) -> None:
    async with cluster_of(options, logs, **workers) as cluster:
        with pytest.raises(EsdError, match=pattern):
            await driven(options, cluster.dispatcher.address, cluster.parameter_servers[0].address)


async def test_workers_with_the_values_of_other_data_end_the_job_by_name(staying, tmp_path):
    (tmp_path / "other").mkdir()
    other = replace(staying, data=write_visits(tmp_path / "other", seed=8))
    there = by_reference(other, tmp_path / "values").site_values
    await fails_by(
        staying,
        tmp_path,
        r"refers to values with the key \w{6}, and the worker has .*values/",
        site_values=there,
    )


async def test_workers_without_values_end_the_job_by_name(staying, tmp_path):
    await fails_by(staying, tmp_path, "this worker has none: set its ESD_WORKER_SITE_VALUES", site_values=None)


async def test_values_of_other_labels_end_the_job_by_name(staying, tmp_path):
    schema = tmp_path / "other.toml"
    schema.write_text(SCHEMA.replace("[0, 1]", "[0, 2]"))
    other = by_reference(replace(staying, schema=schema), tmp_path / "values").site_values
    await fails_by(staying, tmp_path, "label is 0 to 2 in the schema of the samples", site_values=other)


async def test_workers_with_damaged_values_or_another_sites_end_by_name(staying, tmp_path):
    values = tmp_path / "values"
    shutil.copytree(staying.site_values / "south", values / "north")
    shutil.copytree(staying.site_values / "south", values / "south")
    rows = values / "south" / "values.f32"
    rows.write_bytes(rows.read_bytes()[:-1] + b"\1")
    async with cluster_of(staying, tmp_path, site_values=values) as cluster, asyncio.timeout(WITHIN_SECONDS):
        for worker, says in (
            (cluster.workers[0], "has the values of site 'south', and the worker is at site 'north'"),
            (cluster.workers[2], "values.f32 has changed since it was written: copy it anew"),
        ):
            await worker.process.wait()
            assert says in worker.log.read_text()
