"""`esd serve` as people start services: by flags over environment variables over a file."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from esd.dispatcher.service.settings import DispatcherSettings
from esd.ps_server.service.settings import ParameterServerSettings
from esd.services.runtime.settings import explain
from esd.serving.settings import ModelSettings
from esd.worker.service.settings import WorkerSettings
from tests.support.command import esd
from tests.support.service_process import command, environment, serving

SERVICES = {
    "ps": ParameterServerSettings,
    "dispatcher": DispatcherSettings,
    "worker": WorkerSettings,
    "model": ModelSettings,
}


def refusal(*arguments: object, **variables: str) -> str:
    """The error of a service that does not start because of its settings."""
    finished = subprocess.run(
        command(*arguments), env=environment(variables), capture_output=True, text=True, timeout=240, check=False
    )
    assert (finished.returncode, finished.stdout) == (2, ""), finished.stderr
    return finished.stderr


@pytest.mark.parametrize("service", SERVICES)
def test_every_setting_is_a_flag_with_its_description(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    shown = esd("serve", service, "--help").stdout
    described = {line.split()[1]: line for line in shown.splitlines() if re.match(r"^│ +--", line)}
    expected = {each.flag: each.meaning for each in explain(SERVICES[service])}
    if service == "model":
        assert "Folder of the model." in shown
        del expected["--folder"]  # an argument
    own = {"--config", "--help"} | ({"--links"} if service == "worker" else set())
    assert set(described) == set(expected) | own
    for flag, meaning in expected.items():
        assert meaning in described[flag]


def test_flags_win_over_variables_and_variables_over_the_file(tmp_path: Path) -> None:
    """The file sets three values; variables override two of them, and a flag overrides one variable."""
    file = tmp_path / "settings.toml"
    file.write_text('[dispatcher]\nlisten = "127.0.0.2:0"\npage_port = 0\nmetrics_port = 0\n')
    off = {"ESD_DISPATCHER_PAGE_PORT": "none", "ESD_DISPATCHER_METRICS_PORT": "none"}
    with serving("dispatcher", "--config", file, "--page-port", 0, **off) as ready:
        assert ready["address"].startswith("127.0.0.2:")
        assert ready["metrics"] is None
        assert ready["page"] is not None


def test_a_flag_wins_however_the_variable_is_written() -> None:
    with serving("ps", "--metrics-port", "none", esd_ps_metrics_port="0", ESD_PS_METRICS_PORT="0") as ready:
        assert ready["metrics"] is None


def test_the_address_of_a_parameter_server_is_a_flag() -> None:
    with serving("ps", "--listen", "127.0.0.2:0", "--store", "memory", "--store-threads", "2") as ready:
        assert ready["address"].startswith("127.0.0.2:")


def test_all_mistakes_in_flags_are_listed_by_variable() -> None:
    told = refusal("ps", "--listen", "nowhere", "--shard", 3, "--shards", 0, ESD_PS_STORE_THREADS="0")
    for mistake in ("ESD_PS_LISTEN=nowhere", "ESD_PS_SHARDS=0", "ESD_PS_STORE_THREADS=0"):
        assert mistake in told
    assert "ESD_PS_SHARD=3" not in told


def test_a_switch_has_an_opposite_and_a_worker_takes_its_place_from_flags() -> None:
    place = ("--name", "edge-1", "--dispatcher", "127.0.0.1:1", "--link", "1e6")
    told = refusal("worker", *place, "--no-shape-link", "--cache-rows", 0, ESD_WORKER_SHAPE_LINK="perhaps")
    assert "ESD_WORKER_CACHE_ROWS=0" in told
    assert told.count("ESD_WORKER_") == 1


@pytest.mark.parametrize(
    ("dispatcher", "reason"),
    [("10.0.0.1", "is not host:port"), ("10.0.0.1:http", "is not host:port"), ("head..lan:50051", "names no host")],
)
def test_an_address_that_is_none_is_one_mistake_of_several(dispatcher: str, reason: str) -> None:
    told = refusal("worker", "--name", "edge-1", "--link", "1e6", "--dispatcher", dispatcher)
    assert f"ESD_WORKER_DISPATCHER={dispatcher}: '{dispatcher}' {reason}" in told
    assert "ESD_WORKER_CACHE_ROWS must be set" in told
    assert "Traceback" not in told


def test_links_and_what_they_set_exclude_each_other() -> None:
    told = refusal("worker", "--dispatcher", "127.0.0.1:1", "--links", "50m", "--name", "edge-1", "--link", "1e6")
    assert "--links sets what --name and --link would set" in told


def test_an_unknown_flag_is_refused_with_a_suggestion() -> None:
    assert "--listen" in refusal("ps", "--lisen", "127.0.0.1:0")
