"""`esd schema`: editors complete exactly the keys that the readers of the files take."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from esd.cli.job_model import taken_by
from esd.cli.later import load
from esd.cli.main import app
from esd.cli.schema import File
from esd.cluster.config import Cluster
from esd.services.runtime.settings import SECTIONS

ROOT = Path(__file__).parents[3]


def printed(file: str) -> dict[str, Any]:
    finished = CliRunner().invoke(app, ["schema", file], catch_exceptions=False)
    assert finished.exit_code == 0
    return json.loads(finished.stdout)


def keys(described: dict[str, Any]) -> set[str]:
    assert described["additionalProperties"] is False
    assert all(each.get("description") for each in described["properties"].values()), described
    return set(described["properties"])


@pytest.mark.parametrize("command", ["train", "simulate", "plan"])
def test_every_option_of_a_command_is_a_key_of_its_file(command: str) -> None:
    described = printed(command)
    assert keys(described) == set(taken_by(load(command)))
    assert described["properties"]["workers"] == {
        "type": "integer", "minimum": 1, "maximum": 128, "default": 4, "description": "Number of workers.",
    }  # fmt: skip
    assert "array" in str(described["properties"]["links"]["anyOf"])
    assert "adagrad" in described["$defs"]["OptimizerKind"]["enum"]


def test_a_schema_s_file_is_described() -> None:
    described = printed("data")
    page = (ROOT / "docs" / "data.md").read_text().partition("```toml\n")[2].partition("```")[0]
    assert set(tomllib.loads(page)) | {"positive", "decimal", "label-range", "time-unit"} == keys(described)
    assert described["required"] == ["label", "ids"]
    listed = described["$defs"]["IdList"]
    assert keys(listed) == {"column", "max", "pool", "table", "longer", "separator"}
    assert (listed["properties"]["max"]["minimum"], listed["properties"]["pool"]["enum"]) == (
        1,
        ["sum", "mean", "list"],
    )
    assert described["properties"]["time-unit"]["enum"] == ["s", "ms", "us", "ns"]
    assert keys(described["$defs"]["TableOptions"]) == {
        *("dim", "optimizer", "learning-rate", "max-norm", "row-ttl", "admit-after")
    }


def test_the_services_sections_are_described_and_none_of_their_keys_is_required() -> None:
    described = printed("serve")
    assert set(described["properties"]) == set(SECTIONS)
    assert "link" in keys(described["$defs"]["WorkerSettings"])
    assert not any("required" in each for each in described["$defs"].values())


def test_a_cluster_s_file_is_described() -> None:
    described = printed("cluster")
    assert keys(described) == set(Cluster.model_fields)
    example = tomllib.loads((ROOT / "deploy" / "cluster.toml").read_text())
    assert set(example) <= set(described["properties"])
    of_hosts = {*example["hosts"][1], "lan", "site", "site_values", "settings"}  # the last four are comments there
    assert of_hosts == keys(described["$defs"]["Host"])


def test_there_is_one_of_every_kind() -> None:
    assert CliRunner().invoke(app, ["schema", "jobs"]).exit_code == 2
    assert all(printed(file.value)["$schema"] for file in File)
