"""The services of a local run have the settings that variables, file and options give them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from esd.run.cluster import LocalServices
from esd.run.events import Event, Started, VariableUnread
from esd.run.options import RunOptions
from esd.run.train import train
from esd.services.domain.errors import EsdError
from esd.services.runtime.settings import SettingsError

OPTIONS = RunOptions(
    data="synthetic:zipf?samples=200&fields=4&keys=500", workers=2, links="100m", batch=10, dim=4, cache_rows=300
)


async def test_services_take_variables_and_file_and_options_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "services.toml"
    config.write_text('[worker]\nmetrics_port = "none"\n')
    monkeypatch.setenv("ESD_CONFIG", str(config))
    monkeypatch.setenv("ESD_DISPATCHER_SHADOW_MECHANISMS", "hash")
    monkeypatch.setenv("ESD_DISPATCHER_PAGE_PORT", "none")
    monkeypatch.setenv("ESD_XYZZY", "1")
    events: list[Event] = []
    run = await train(OPTIONS, events.append)
    assert [cost.mechanism for cost in run.state.shadow_costs] == ["hash"]
    assert [event.reason for event in events if isinstance(event, VariableUnread)] == [
        "ESD_XYZZY: nothing reads this variable"
    ]
    (started,) = [event for event in events if isinstance(event, Started)]
    assert started.page is None
    assert started.cluster is not None
    assert [worker.metrics for worker in started.cluster.workers] == [None, None]
    assert started.cluster.dispatcher.metrics is not None

    run = await train(OPTIONS, shadows=("random",))
    assert [cost.mechanism for cost in run.state.shadow_costs] == ["random"]
    run = await train(OPTIONS, shadows=())
    assert not run.state.shadow_costs


async def test_the_limit_that_a_message_names_is_the_one_that_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = replace(OPTIONS, checkpoint_every=5)
    monkeypatch.setenv("ESD_PS_MAX_DENSE_BYTES", "500")
    with pytest.raises(EsdError, match=r"have \d+ bytes, and the parameter server stores 500 .ESD_PS_MAX_DENSE_BYTES"):
        await train(small, out=tmp_path, graphs=False)
    monkeypatch.setenv("ESD_PS_MAX_DENSE_BYTES", "5000000")
    await train(small, out=tmp_path, graphs=False)


async def test_a_setting_of_another_place_ends_a_run_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ESD_PS_LISTEN", "10.0.0.1:50052")
    with pytest.raises(SettingsError, match="ESD_PS_LISTEN"):
        await train(OPTIONS, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(SettingsError, match="ESD_PS_LISTEN"):
        async with LocalServices(worker_links=[1e6], cache_rows=[100], logs=tmp_path):
            pytest.fail("the cluster has started")
