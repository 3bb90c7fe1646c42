"""`esd train --dispatcher` on services that run already."""

import asyncio
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import esd
from esd.cli.main import app
from esd.run.cluster import LocalServices
from esd.run.options import RunOptions
from esd.run.simulation import simulate_run
from esd.run.train import train_attached
from esd.services.domain.errors import FailedPrecondition, InvalidArgument
from esd.services.domain.mechanisms import Criterion
from esd.services.domain.tables import OptimizerKind
from tests.support.models import model_arrays

OPTIONS = RunOptions(
    data="flights", model="wdl", workers=2, links="1g", mechanism="esd", alpha=1.0, criterion=Criterion.MIN2_MIN,
    batch=16, workloads=None, dim=4, cache_ratio=None, cache_rows=600, policy="emark", optimizer=OptimizerKind.SGD,
    learning_rate=0.05, iterations=10, skip_bad=0, seed=1,
)  # fmt: skip


async def test_a_run_on_running_services_is_as_simulated_and_leaves_them_running(tmp_path: Path) -> None:
    links = OPTIONS.bandwidths()
    async with LocalServices(
        shards=2, store="memory", worker_links=links, cache_rows=[OPTIONS.cache_rows] * 2, logs=tmp_path
    ) as cluster:
        servers = ",".join(server.address for server in cluster.parameter_servers)
        run = await train_attached(
            OPTIONS, dispatcher=cluster.dispatcher.address, parameter_servers=servers, table="mine", out=tmp_path
        )
        assert cluster.dispatcher.process.returncode is None
    simulated = simulate_run(OPTIONS)
    result = run.result()
    assert result["operations"] == simulated["operations"]
    counted, expected = result["link_bytes"], simulated["link_bytes"]
    assert counted["dense"] == expected["dense"]
    assert result["initial_pulls"] == simulated["initial_pulls"]
    marks = 5 * np.array(result["operations"]["miss_pull"])  # in answers that bring a part of the rows, or mark some
    for kind, direction, beside in (("rows", "down", marks), ("plans", "down", 0), ("gradients", "up", 0)):
        carried, least = np.array(counted[kind][direction]), np.array(expected[kind][direction])
        assert ((carried >= least) & (carried < 1.4 * least + beside)).all(), kind  # with flushes, and frames
    model = model_arrays(tmp_path / "model")
    assert len(model["ids"]) > 0


async def test_a_program_fits_models_on_running_services_and_leaves_them_running(tmp_path: Path) -> None:
    numbers = np.arange(400)
    frame = pd.DataFrame({"clicked": numbers % 2, "user": numbers, "item": numbers % 7})
    samples = esd.read(frame, esd.Schema(label="clicked", ids=("user", "item")))
    train, test = samples.split(0.2)
    options = {"batch": 16, "dim": 4, "hidden": [8], "progress": False, "graphs": False}

    def fit(dispatcher: str, servers: list[str]) -> list[int]:
        class Local(esd.Model):
            pass

        with esd.connect(dispatcher, parameter_servers=servers, workers=2) as cluster:
            with pytest.raises(FailedPrecondition, match=r"Local is defined in this program.*ESD_WORKER_CODE"):
                cluster.fit(Local, train, **options)
            first = cluster.fit("wdl", train, evaluate=test, evaluate_every=4, keep="best", **options)
            assert "auc" in first.evaluate(test)
            first.export(tmp_path / "fitted")
            return [first.result["iterations"], len(esd.load(tmp_path / "fitted").predict(frame[:3]))]

    async with LocalServices(worker_links=[1e8] * 2, cache_rows=[400] * 2, logs=tmp_path, shards=2) as cluster:
        servers = [server.address for server in cluster.parameter_servers]
        assert await asyncio.to_thread(fit, cluster.dispatcher.address, servers) == [10, 3]
        assert cluster.dispatcher.process.returncode is None


async def test_a_malformed_parameter_server_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"--parameter-servers.*'here'"):
        await train_attached(OPTIONS, dispatcher="127.0.0.1:1", parameter_servers="127.0.0.1:1,here")


async def test_a_model_that_has_nowhere_to_go_is_not_trained(tmp_path: Path) -> None:
    file = tmp_path / "model"
    file.touch()
    with pytest.raises(OSError, match="Not a directory"):
        await train_attached(OPTIONS, dispatcher="127.0.0.1:1", parameter_servers="127.0.0.1:1", out=file / "below")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--dispatcher", "d:1", "--parameter-servers", "p:1", "--links", "1g"], "--links is decided"),
        (["--dispatcher", "d:1", "--parameter-servers", "p:1", "--cache-rows", "5"], "--cache-rows is decided"),
        (["--dispatcher", "d:1", "--parameter-servers", "p:1", "--checkpoint-dir", "d"], "--checkpoint-dir is decided"),
        (["--dispatcher", "http://d:1", "--parameter-servers", "p:1"], "--dispatcher: 'http://d:1' is not host:port"),
        (["--dispatcher", "d:1", "--parameter-servers", "p:1", "--table", ""], "table name '' must match"),
        (["--dispatcher", "d:1"], "go together"),
        (["--parameter-servers", "p:1"], "go together"),
    ],
)
def test_options_that_contradict_each_other_are_refused(arguments: list[str], reason: str) -> None:
    result = CliRunner().invoke(app, ["train", *arguments])
    assert isinstance(result.exception, InvalidArgument)
    assert reason in str(result.exception)
