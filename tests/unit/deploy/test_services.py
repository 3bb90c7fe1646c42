"""Files made from the description of the services are up to date, and other files of deploy/ name the same ports."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from esd.cluster.services import SERVICES
from scripts import compose

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("path", compose.files())
def test_files_are_as_the_description_makes_them(path: Path) -> None:
    assert (ROOT / path).read_text() == compose.files()[path], "run `make services`"


def test_other_compose_files_name_the_ports_of_the_description() -> None:
    named = {
        (name, int(port))
        for file in (ROOT / "deploy").glob("*.yml")
        for name, port in re.findall(r"\b(ps_server|dispatcher|worker):(\d+)", file.read_text())
    }
    assert named
    for name, port in named:
        assert port == getattr(SERVICES, name).ports["grpc"], name


def test_prometheus_scrapes_the_ports_of_the_description() -> None:
    jobs = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())["scrape_configs"]
    assert len(jobs) == 3
    for job in jobs:
        port = SERVICES.model_dump()[job["job_name"]]["ports"]["metrics"]
        targets = [target for config in job.get("static_configs", ()) for target in config["targets"]]
        assert targets == [f"{job['job_name']}:{port}"] or job["dns_sd_configs"][0]["port"] == port


def test_the_containers_of_the_compose_file_take_all_that_the_description_says() -> None:
    described = yaml.safe_load((ROOT / compose.COMPOSE).read_text())
    for name in ("ps_server", "dispatcher", "worker", "driver"):
        service = described["services"][name]
        for key, value in described[f"x-{name}"].items():
            assert service[key] == value, (name, key)
        written = described.get(f"x-{name}-environment", {})
        assert written.items() <= service.get("environment", {}).items(), name
