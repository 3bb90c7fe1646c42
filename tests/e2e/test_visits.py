"""The example with its own data and model in containers: a user's files lie in a folder that the containers see."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.compose import docker
from tests.support.models import assert_trained
from tests.support.visits import copied, model_of_one_process, options_of

pytestmark = pytest.mark.timeout(600)


def test_the_example_trains_in_containers(new_project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = copied(tmp_path / "code", 1000)
    project = new_project(
        files=["deploy/code.yml"],
        variables={"CODE_DIR": str(folder), "TRAIN": "--config job.toml", "CACHE_ROWS": "2000"},
    )
    project.must("up", "--detach", timeout=240)
    assert project.exit_of("driver", timeout=400) == 0, project.logs()
    result = project.result(project.logs("driver"))
    assert len(project.containers("worker")) == 4
    assert (result["samples"], result["iterations"]) == (9000, 36)
    assert 0.5 < result["held_out"]["auc"] < 1  # scored in the driver's container, with the model that lies there, too

    docker("cp", f"{project.containers('driver')[0]}:/out/model", str(tmp_path))
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    assert_trained(tmp_path / "model", model_of_one_process(options_of(folder))[0])
