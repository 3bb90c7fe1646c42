"""Speeds and sizes have one notation, in every place where a person writes one."""

from __future__ import annotations

from pathlib import Path

import pytest

from esd.cluster.config import read_cluster
from esd.cluster.containers import containers_of
from esd.cluster.replica import replica_link
from esd.ps_server.service.settings import ParameterServerSettings
from esd.run.links import parse_links
from esd.services.domain.errors import InvalidArgument
from esd.services.domain.units import parse_link, parse_size, parse_speed
from esd.services.runtime.settings import SettingsError, load
from esd.worker.service.settings import WorkerSettings

SPEEDS = {"50m": 6.25e6, "5G": 625e6, "62.5k": 7812.5, " 1.5 Mbit/s": 187_500.0, "10mbps": 1.25e6, "8000": 1000.0}
SIZES = {"64MiB": 64 << 20, "2g": 2 << 30, "1.5k": 1536, "1GB": 10**9, "500 kB": 500_000, " 7 ": 7, "7 B": 7}


@pytest.mark.parametrize(("text", "expected"), SPEEDS.items())
def test_a_speed_is_written_in_bits(text: str, expected: float) -> None:
    assert parse_speed(text) == expected
    assert parse_links(text, 2) == (expected, expected)
    assert replica_link(text, "127.0.0.1") == expected


@pytest.mark.parametrize("text", ["", "0", "0m", "-1g", "5gb", "6.25 MB/s", "fast", "1e9", "nan"])
def test_what_is_no_speed_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="is not a positive number of bits per second such as 500m"):
        parse_speed(text)


def test_a_speed_without_its_unit_is_told_before_it_slows_a_run_down() -> None:
    with pytest.raises(InvalidArgument, match="'100' is 100 bits per second: write 100m for megabits"):
        parse_links("100", 4)
    with pytest.raises(InvalidArgument, match=r"link 50 is a number of bytes per second .* write 50m"):
        parse_link("50")


@pytest.mark.parametrize(("text", "expected"), SIZES.items())
def test_a_size_is_written_in_bytes(text: str, expected: int) -> None:
    assert parse_size(text) == expected


@pytest.mark.parametrize("text", ["", "0", "0m", "-1g", "2gbit", "many", "1e3", "0.1"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="not a positive number of bytes such as 64MiB"):
        parse_size(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [*((text, speed) for text, speed in SPEEDS.items() if text != "8000"), ("1e9", 1e9), (8e3, 8e3)],
)
def test_a_worker_s_link_has_the_notation_too_and_a_bare_number_is_bytes(
    monkeypatch: pytest.MonkeyPatch, text: str | float, expected: float
) -> None:
    given = {"name": "a", "dispatcher": "127.0.0.1:1", "cache_rows": 1}
    assert load(WorkerSettings, link=text, **given).link == expected
    monkeypatch.setenv("ESD_WORKER_LINK", str(text))
    assert load(WorkerSettings, **given).link == expected


def test_a_worker_s_wrong_link_is_named_with_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESD_WORKER_LINK", "50mb")
    with pytest.raises(SettingsError, match=r"ESD_WORKER_LINK=50mb: link speed '50mb' is not .* bits per second"):
        load(WorkerSettings, name="a", dispatcher="127.0.0.1:1", cache_rows=1)


@pytest.mark.parametrize("setting", [name for name in ParameterServerSettings.model_fields if name.endswith("_bytes")])
def test_every_setting_of_bytes_is_written_as_a_size(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, setting: str
) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(f'[ps]\n{setting} = "64MiB"\n')
    monkeypatch.setenv("ESD_CONFIG", str(file))
    assert getattr(load(ParameterServerSettings), setting) == 64 << 20
    monkeypatch.setenv(f"ESD_PS_{setting.upper()}", "65MB")
    assert getattr(load(ParameterServerSettings), setting) == 65_000_000
    monkeypatch.setenv(f"ESD_PS_{setting.upper()}", "67108864")
    assert getattr(load(ParameterServerSettings), setting) == 64 << 20
    monkeypatch.setenv(f"ESD_PS_{setting.upper()}", "much")
    with pytest.raises(SettingsError, match="_BYTES=much: size 'much' is not a positive number of bytes"):
        load(ParameterServerSettings)


def test_a_size_below_a_setting_s_least_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESD_PS_MAX_MESSAGE_BYTES", "1k")
    with pytest.raises(SettingsError, match=r"ESD_PS_MAX_MESSAGE_BYTES=1024: .* greater than or equal to 2097152"):
        load(ParameterServerSettings)


def test_a_cluster_s_file_has_the_notation(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(
        'head = "a"\n[memory]\nredis = "2GB"\n[[hosts]]\nname = "a"\nengine = "unix:///var/run/docker.sock"\n'
        'address = "127.0.0.1"\nlink = "50 Mbit/s"\nmemory = "512MiB"\n'
    )
    containers = {each.service: each for each in containers_of(read_cluster(file))}
    assert containers["worker"].environment["ESD_WORKER_LINK"] == "6250000.0"
    assert (containers["worker"].memory, containers["redis"].memory) == (512 << 20, 2 * 10**9)
