"""`esd train --dispatcher` on services that run already."""

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from esd.cli.main import app
from esd.run.cluster import LocalServices
from esd.run.options import RunOptions
from esd.run.simulation import simulate_run
from esd.run.train import train_attached
from esd.services.domain.errors import InvalidArgument
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
    for kind, direction in (("rows", "down"), ("plans", "down"), ("gradients", "up")):  # with flushes, and frames
        shares = np.array(counted[kind][direction]) / expected[kind][direction]
        assert ((shares >= 1) & (shares < 1.4)).all(), (kind, shares)
    model = model_arrays(tmp_path / "model")
    assert len(model["ids"]) > 0


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
